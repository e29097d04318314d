package snowbank

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var background = context.Background()

func TestBadOptionsAreNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, []byte("\n"), 0o600))
	one := []string{"ids-1:7660"}
	for _, bad := range []struct {
		options Options
		option  string
		says    string
	}{
		{Options{}, "Endpoints", "at least one is needed"},
		{Options{Endpoints: []string{""}}, "Endpoints", "write 127.0.0.1:7660"},
		{Options{Endpoints: []string{"7660"}}, "Endpoints", "write 127.0.0.1:7660"},
		{Options{Endpoints: []string{"ids-1"}}, "Endpoints", "write ids-1:7660"},
		{Options{Endpoints: []string{"ids-1:7660", "*:7660"}}, "Endpoints", "the host is missing"},
		{Options{Endpoints: []string{"ids-1:0"}}, "Endpoints", "1 to 65535"},
		{Options{Endpoints: []string{"ids-1:65536"}}, "Endpoints", "above 65535"},
		{Options{Endpoints: []string{"ids-1:+1"}}, "Endpoints", "is not a number"},
		{Options{Endpoints: []string{"http://ids-1:7660"}}, "Endpoints", "leave out the scheme; write host:port"},
		{Options{Endpoints: []string{"ids 1:7660"}}, "Endpoints", "cannot be part of a host name"},
		{Options{Endpoints: []string{"10.0.0:7660"}}, "Endpoints", "not an IPv4 address"},
		{Options{Endpoints: []string{"::1:7660"}}, "Endpoints", "[::1]:7660"},
		{Options{Endpoints: []string{"[::1"}}, "Endpoints", "never closed"},
		{Options{Endpoints: []string{"[::1]"}}, "Endpoints", "write [::1]:7660"},
		{Options{Endpoints: []string{"[ids]:1"}}, "Endpoints", "not an IPv6 address"},
		{Options{Endpoints: []string{"/run/s.sock"}}, "Endpoints", "written unix:/run/s.sock"},
		{Options{Endpoints: []string{"unix:"}}, "Endpoints", "wants the path"},
		{Options{Endpoints: []string{"unix:/a\nb"}}, "Endpoints", "control characters"},
		{Options{Endpoints: []string{"unix:/" + strings.Repeat("s", 107)}}, "Endpoints", "at most 107"},
		{Options{Endpoints: []string{"tls:unix:/s"}}, "Endpoints", "takes no TLS"},
		{Options{Endpoints: []string{strings.Repeat("h", 254) + ":1"}}, "Endpoints", "at most 253"},
		{Options{Endpoints: one, Token: "s3cret\n"}, "Token", "the end of a line at byte 6 of 7"},
		{Options{Endpoints: one, Token: Token(strings.Repeat("t", 513))}, "Token", "513 bytes; 1 to 512"},
		{Options{Endpoints: one, Token: "a", TokenFile: empty}, "Token", "set one of them"},
		{Options{Endpoints: one, TokenFile: missing}, "TokenFile", "no such file"},
		{Options{Endpoints: one, TokenFile: empty}, "TokenFile", "holds no token"},
		{Options{Endpoints: one, TLS: &tls.Config{}}, "TLS", "write tls:ids-1:7660"},
		{Options{Endpoints: one, Timeout: -1}, "Timeout", "is negative"},
		{Options{Endpoints: one, MaxAge: -time.Second}, "MaxAge", "-1s is negative"},
		{Options{Endpoints: one, MinBackoff: time.Minute}, "MinBackoff", "above MaxBackoff"},
		{Options{Endpoints: one, MaxBatch: -5}, "MaxBatch", "-5 is not allowed"},
		{Options{Endpoints: one, MaxBatch: 1 << 40}, "MaxBatch", "1 to 4294967295"},
	} {
		_, err := New(bad.options)
		var option *OptionError
		if !errors.As(err, &option) || option.Option != bad.option || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s, %q was due: %v", bad.option, bad.says, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("more than one line: %v", err)
		}
	}
	if _, err := New(Options{Endpoints: one, TokenFile: missing}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file's error is lost: %v", err)
	}
	if _, err := TLSFiles("", missing, ""); err == nil || !strings.Contains(err.Error(), "both or neither") {
		t.Errorf("a certificate without its key: %v", err)
	}
}

func TestEndpointsOfEveryForm(t *testing.T) {
	for _, text := range []string{"127.0.0.1:7660", "[::1]:7660", "[fe80::1%eth0]:7660", "host.name:1", "localhost:65535",
		"unix:/run/snowbank/snowbank.sock", "unix:@x", "tls:host.name:7661", "tls:[::1]:7661"} {
		if _, err := parseAddress(text); err != nil {
			t.Error(err)
		}
	}
}

func TestBadCallsFailAtOnce(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	for _, count := range []int{0, -1, 1 << 40} {
		_, err := client.Batch(background, count)
		var option *OptionError
		if !errors.As(err, &option) || !errors.Is(err, ErrBadCount) || !strings.Contains(err.Error(), fmt.Sprint(count)) {
			t.Errorf("%d: %v", count, err)
		}
	}
	if _, err := client.Batch(background, 1, MaxWait(-1)); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative wait: %v", err)
	}
	cancelled, cancel := context.WithCancel(background)
	cancel()
	past, cancel := context.WithTimeout(background, 0)
	defer cancel()
	id, err := client.Next(background)
	must(t, err)
	for name, call := range bothCalls(client) {
		if err := call(cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", name, err)
		}
		err := call(past)
		var deadline *DeadlineError
		if !errors.As(err, &deadline) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "before it began") {
			t.Errorf("%s, without time: %v", name, err)
		}
	}
	if after, err := client.Next(background); err != nil || after != id+1 {
		t.Errorf("a cancelled call has taken an ID: %d after %d, %v", after, id, err)
	}
}

// bothCalls returns Next and Batch as functions of one form.
func bothCalls(client *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Next": func(ctx context.Context) error {
			_, err := client.Next(ctx)
			return err
		},
		"Batch": func(ctx context.Context) error {
			_, err := client.Batch(ctx, 5)
			return err
		},
	}
}

func TestCloseEndsEveryCall(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}, AnswerTimeout: time.Minute, Timeout: time.Minute})
	if _, err := client.Next(background); err != nil {
		t.Fatal(err)
	}
	daemon.set(func(d *fakeDaemon) { d.isSilent = true })
	errs := make(chan error, 2)
	go func() { errs <- bothCalls(client)["Batch"](background) }()
	go func() {
		_, err := client.Source("default").Next(background)
		errs <- err
	}()
	eventually(t, "two requests", func() bool { return daemon.requestCount() >= 3 })
	must(t, client.Close())
	must(t, client.Close())
	for i := 0; i < 2; i++ {
		select {
		case err := <-errs:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("a call in flight: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a call did not end")
		}
	}
	// IDs were left in the buffer.
	for name, call := range bothCalls(client) {
		if err := call(background); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestCloseEndsWaitingForABackoff(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	daemon.stop()
	before := runtime.NumGoroutine()
	client := newClient(t, Options{Endpoints: []string{daemon.address}, Timeout: time.Minute,
		MinBackoff: time.Hour, MaxBackoff: time.Hour})
	ended := make(chan error, 1)
	go func() { ended <- bothCalls(client)["Next"](background) }()
	eventually(t, "a failed try", func() bool { return len(client.EndpointErrors()) == 1 })
	must(t, client.Close())
	select {
	case err := <-ended:
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a call did not end")
	}
	eventually(t, "every goroutine has ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestOneDeadlineCoversAllTries(t *testing.T) {
	silent := startFake(t, "127.0.0.1:0")
	silent.set(func(d *fakeDaemon) { d.isSilent = true })
	gone := startFake(t, "127.0.0.1:0")
	gone.stop()
	client := newClient(t, Options{Endpoints: []string{silent.address, gone.address}, AnswerTimeout: 30 * time.Millisecond,
		Timeout: 300 * time.Millisecond})
	for name, call := range bothCalls(client) {
		err := call(background)
		var deadline *DeadlineError
		if !errors.As(err, &deadline) || deadline.Allowed > 300*time.Millisecond {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(err.Error(), silent.address) {
			t.Errorf("%s: the daemon that does not answer is not named: %v", name, err)
		}
	}
}

func TestEndpointThatDoesNotGreetIsLeftForTheNext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{silent.Addr().String(), daemon.address}, ConnectTimeout: 50 * time.Millisecond})
	if id := single(t, client); !daemon.owns(id) {
		t.Errorf("%d", id)
	}
	if errs := client.EndpointErrors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "within 50ms") {
		t.Error(errs)
	}
}

func TestTokensAreNeverPrinted(t *testing.T) {
	options := Options{Endpoints: []string{"127.0.0.1:1"}, Token: "s3cret"}
	client := newClient(t, options)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, printed := range []any{options, &options, options.Token, client} {
			text := fmt.Sprintf(verb, printed)
			if strings.Contains(text, "s3cret") || strings.Contains(text, "733363") || strings.Contains(text, "115 51") {
				t.Errorf("%s prints the token: %s", verb, text)
			}
		}
	}
}

func TestTokenFileIsReadForEachConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("first\r\n"), 0o600))
	options := Options{Endpoints: []string{"127.0.0.1:1"}, TokenFile: file}
	if _, err := New(options); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second"} {
		must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		if read, err := options.readToken(); err != nil || read != token {
			t.Errorf("%q was due: %q, %v", token, read, err)
		}
	}
	must(t, os.WriteFile(file, []byte("one\ntwo\n"), 0o600))
	if _, err := options.readToken(); err == nil || !strings.Contains(err.Error(), "the end of a line at byte 3") {
		t.Errorf("two lines: %v", err)
	}
}

func TestCertificateThatDoesNotFit(t *testing.T) {
	t.Parallel()
	certificate, pool := selfSigned(t, "ids.internal")
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go socket.(*tls.Conn).Handshake()
		}
	}()
	endpoint := "tls:" + listener.Addr().String()
	plain := startFake(t, "127.0.0.1:0")
	for _, bad := range []struct {
		endpoint string
		config   *tls.Config
		fits     func(error) bool
	}{
		{endpoint, &tls.Config{RootCAs: pool}, func(err error) bool { return errors.As(err, &x509.HostnameError{}) }},
		{endpoint, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "ids.internal"},
			func(err error) bool { return errors.As(err, &x509.UnknownAuthorityError{}) }},
		{"tls:" + plain.address, nil, func(err error) bool { return errors.Is(err, ErrUnreachable) }},
	} {
		bad := bad
		t.Run("", func(t *testing.T) {
			t.Parallel()
			client := newClient(t, Options{Endpoints: []string{bad.endpoint}, TLS: bad.config, Timeout: 6 * time.Second})
			_, err := client.Batch(background, 1)
			if !bad.fits(err) || !strings.Contains(err.Error(), strings.TrimPrefix(bad.endpoint, "tls:")) {
				t.Errorf("%s: %v", bad.endpoint, err)
			}
		})
	}
}

func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestManyGoroutinesShareAConnection(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	var recorded recorder
	var all sync.WaitGroup
	for i := 0; i < 2*inFlightMax; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			ids, err := client.Batch(background, 3)
			id, nextErr := client.Next(background)
			if err != nil || nextErr != nil || recorded.add(0, append(ids, id)...) != 0 {
				t.Errorf("%v %v %d: %v, %v, or an ID that came twice", ids, id, len(ids), err, nextErr)
			}
		}()
	}
	all.Wait()
	if count := daemon.connectionCount(); count != 1 {
		t.Errorf("%d connections", count)
	}
}

func TestServersOfOtherProtocolsAreNamed(t *testing.T) {
	for answer, name := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n": `in HTTP ("HTTP/1.1 400 Bad Request")`,
		"<html>\r\n":                       `in HTTP ("<html>")`,
		"-ERR unknown command\r\n":         "as Redis does",
		"SSH-2.0-OpenSSH_9.2\r\n":          `in text ("SSH-2.0-OpenSSH_9.2")`,
		"\x15\x03\x01\x00\x02\x02\x0a":     "write tls:host:port",
		"\x00\x00\x00\x00":                 "a length of 0; 4 to 65536",
	} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer listener.Close()
		go func(answer string) {
			for {
				socket, err := listener.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(socket, answer)
			}
		}(answer)
		client := newClient(t, Options{Endpoints: []string{listener.Addr().String()}})
		_, err = client.Next(background)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q was due: %v", name, err)
		}
		// While another endpoint serves, the other server is only listed.
		daemon := startFake(t, "127.0.0.1:0")
		client = newClient(t, Options{Endpoints: []string{listener.Addr().String(), daemon.address}})
		if _, err = client.Next(background); err != nil {
			t.Error(err)
		}
		if errs := client.EndpointErrors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), name) {
			t.Errorf("%q was due: %v", name, errs)
		}
	}
}

func TestRepliesThatBreakThePromises(t *testing.T) {
	run := func(first uint64, count, stride uint32) []byte {
		body := binary.LittleEndian.AppendUint64(nil, first)
		body = binary.LittleEndian.AppendUint32(body, count)
		return binary.LittleEndian.AppendUint32(body, stride)
	}
	list := binary.LittleEndian.AppendUint64(nil, 7)
	asked := nextRequest{count: 3}
	for _, bad := range []struct {
		asked  nextRequest
		frames []frame
		says   string
	}{
		{asked, []frame{{kind: kindRuns, body: run(1, 4, 1)}}, "more than the 3 IDs"},
		{asked, []frame{{kind: kindRuns, body: run(1, 3, 1), flags: flagMore}, {kind: kindRuns, body: run(9, 1, 1)}}, "more than the 3 IDs"},
		{asked, []frame{{kind: kindList, body: list}}, "has 1 IDs and 3"},
		{asked, []frame{{kind: kindRuns, body: run(1, 0, 1)}}, "a run of no IDs"},
		{asked, []frame{{kind: kindRuns, body: run(1, 1, 1), flags: flagMore}, {kind: kindList, body: list}}, wrongKind},
		{nextRequest{count: 3, explicit: true}, []frame{{kind: kindRuns, body: run(1, 3, 1)}}, wrongKind},
		{asked, []frame{{kind: kindPong}}, wrongKind},
	} {
		collector, problem := idCollector{asked: bad.asked}, ""
		for i := range bad.frames {
			_, problem = collector.add(&bad.frames[i])
		}
		if !strings.Contains(problem, bad.says) {
			t.Errorf("%q was due: %q", bad.says, problem)
		}
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("\x14\x00\x00\x00\x81\x00\x07\x00\x00\xa0\x17\x62\x1f\xa1\x65\x15\xe8\x03\x00\x00\x01\x00\x00\x00"), uint32(1000))
	f.Add([]byte("\x0c\x00\x00\x00\x82\x01\x07\x00\x01\x00\x00\x00\x00\x00\x00\x00"), uint32(2))
	f.Add([]byte("\x0c\x00\x00\x00\xff\x00\x07\x00\x06\x00\x00\x00\xb0\x04\x00\x00"), uint32(1))
	f.Add([]byte("HTTP/1.1 400"), uint32(1))
	f.Fuzz(func(t *testing.T, arrived []byte, count uint32) {
		count %= 10_000
		in := input{buffer: arrived, end: len(arrived)}
		collector := idCollector{asked: nextRequest{count: count, partial: true}}
		for {
			frame, isWhole, problem := in.next()
			if !isWhole || problem != "" {
				break
			}
			if frame.kind == kindError {
				frame.refusal("ids-1:7660")
			} else if frame.kind == kindJSON {
				parseInfo(frame.body)
			} else if isDone, problem := collector.add(&frame); isDone || problem != "" {
				break
			}
		}
		if len(collector.ids) > int(count) {
			t.Errorf("%d IDs, and %d were asked for", len(collector.ids), count)
		}
		for i := 1; i < len(collector.ids); i++ {
			if uint64(collector.ids[i]) <= uint64(collector.ids[i-1]) {
				t.Errorf("%d follows %d", collector.ids[i], collector.ids[i-1])
			}
		}
	})
}
