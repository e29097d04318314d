package snowbank

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
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
	one, encrypted := []string{"ids-1:7660"}, []string{"tls:ids-1:7660"}
	const forms = "write host:port, [IPv6]:port"
	for _, bad := range []struct {
		options Options
		option  string
		says    string
	}{
		{Options{}, "Endpoints", "at least one is needed"},
		{Options{Endpoints: []string{""}}, "Endpoints", forms},
		{Options{Endpoints: []string{"7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"ids-1"}}, "Endpoints", forms},
		{Options{Endpoints: []string{":7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"ids-1:7660", "*:7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"ids-1:0"}}, "Endpoints", "1 to 65535"},
		{Options{Endpoints: []string{"ids-1:65536"}}, "Endpoints", "1 to 65535"},
		{Options{Endpoints: []string{"ids-1:+1"}}, "Endpoints", "1 to 65535"},
		{Options{Endpoints: []string{"http://ids-1:7660"}}, "Endpoints", "leave out the scheme"},
		{Options{Endpoints: []string{"ids 1:7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"ids-1\n:7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"10.0.0:7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"::1:7660"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"[::1"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"[::1]"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"[ids:1]:1"}}, "Endpoints", forms},
		{Options{Endpoints: []string{"/run/s.sock"}}, "Endpoints", "unix:/path"},
		{Options{Endpoints: []string{"unix:"}}, "Endpoints", "1 to 107 printable bytes"},
		{Options{Endpoints: []string{"unix:/a\nb"}}, "Endpoints", "printable"},
		{Options{Endpoints: []string{"unix:/" + strings.Repeat("s", 107)}}, "Endpoints", "1 to 107"},
		{Options{Endpoints: []string{strings.Repeat("h", 254) + ":1"}}, "Endpoints", forms},
		{Options{Endpoints: one, Source: strings.Repeat("s", 65)}, "Source", "1 to 64 bytes"},
		{Options{Endpoints: one, Source: "\xff"}, "Source", "UTF-8"},
		{Options{Endpoints: one, Token: "s3cret\n"}, "Token", "the end of a line at byte 6 of 7"},
		{Options{Endpoints: one, Token: Token(strings.Repeat("t", 513))}, "Token", "513 bytes; 1 to 512"},
		{Options{Endpoints: one, Token: "a", TokenFile: empty}, "Token", "set one of them"},
		{Options{Endpoints: one, TokenFile: missing}, "TokenFile", "no such file"},
		{Options{Endpoints: one, TokenFile: empty}, "TokenFile", "holds no token"},
		{Options{Endpoints: one, CAFile: missing}, "CAFile", "write tls:ids-1:7660"},
		{Options{Endpoints: encrypted, CAFile: missing}, "CAFile", "no such file"},
		{Options{Endpoints: encrypted, CAFile: empty}, "CAFile", "no certificate"},
		{Options{Endpoints: encrypted, CertFile: empty}, "CertFile", "no certificate with its key"},
		{Options{Endpoints: one, Timeout: -1}, "Timeout", "is negative"},
		{Options{Endpoints: one, TakeTurns: true, PreferFirst: true}, "PreferFirst", "set one of them"},
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
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	for _, count := range []int{0, -1, 1 << 40} {
		_, err := client.Batch(background, count)
		var option *OptionError
		if !errors.As(err, &option) || !errors.Is(err, ErrBadCount) || !strings.Contains(err.Error(), fmt.Sprint(count)) {
			t.Errorf("%d: %v", count, err)
		}
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
	var none context.Context
	for name, call := range bothCalls(client) {
		var option *OptionError
		if err := call(none); !errors.As(err, &option) {
			t.Errorf("%s without a context: %v", name, err)
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

// inFlight makes a client with a Batch, a Next and a Ping that the daemon does not answer.
func inFlight(t *testing.T) (client *Client, daemon *fakeDaemon, errs chan error) {
	t.Helper()
	daemon = startFake(t)
	client = newClient(t, Options{Endpoints: []string{daemon.address}})
	must(t, client.Ping(background))
	daemon.set(func(d *fakeDaemon) { d.isSilent = true })
	errs = make(chan error, 3)
	go func() { errs <- bothCalls(client)["Batch"](background) }()
	go func() { errs <- bothCalls(client)["Next"](background) }()
	go func() { errs <- client.Ping(background) }()
	eventually(t, "two requests", func() bool { return len(daemon.nextCounts()) == 2 })
	return client, daemon, errs
}

func mustEnd(t *testing.T, errs chan error, want error) {
	t.Helper()
	for i := 0; i < cap(errs); i++ {
		select {
		case err := <-errs:
			if !errors.Is(err, want) {
				t.Errorf("a call in flight: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a call did not end")
		}
	}
}

func TestCloseEndsEveryCallAndGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	client, daemon, errs := inFlight(t)
	must(t, client.Close())
	must(t, client.Close())
	mustEnd(t, errs, ErrClosed)
	for name, call := range bothCalls(client) {
		if err := call(background); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if err := client.Ping(background); !errors.Is(err, ErrClosed) {
		t.Errorf("Ping after Close: %v", err)
	}
	must(t, client.Shutdown(background))
	daemon.stop()
	eventually(t, "every goroutine has ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	hold := make(chan struct{})
	daemon.onNext = func(tag uint16) []byte {
		<-hold
		return appendRun(tag, 1, 5)
	}
	errs := make(chan error, 1)
	go func() { errs <- bothCalls(client)["Batch"](background) }()
	eventually(t, "a call in flight", func() bool { return client.core.calls.Load() == 1 })
	ended := make(chan error, 1)
	go func() { ended <- client.Shutdown(background) }()
	eventually(t, "the client is closing", client.core.isClosing.Load)
	if err := client.Ping(background); !errors.Is(err, ErrClosed) {
		t.Errorf("a new call: %v", err)
	}
	close(hold)
	mustEnd(t, errs, nil)
	must(t, <-ended)
}

func TestShutdownCutsCallsOffAtItsDeadline(t *testing.T) {
	client, _, errs := inFlight(t)
	// A call that cannot work ends nothing.
	var none context.Context
	if err := client.Shutdown(none); err != errNoContext || len(errs) > 0 {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	if err := client.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("calls were in flight: %v", err)
	}
	mustEnd(t, errs, ErrClosed)
}

// A daemon that reads nothing fills its socket.
func TestNoCallWaitsForASocketThatIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	must(t, err)
	defer listener.Close()
	go func() {
		socket, err := listener.Accept()
		if err != nil {
			return
		}
		defer socket.Close()
		io.ReadFull(socket, make([]byte, headSize+len(magic)+2))
		socket.Write(appendWelcome(helloTag, 60_000, 1_000, 1))
		listener.Accept()
	}()
	client := newClient(t, Options{Endpoints: []string{"unix:" + path}})
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	errs := make(chan error, 600)
	for i := 0; i < cap(errs); i++ {
		go func() {
			_, err := client.Batch(ctx, 1)
			errs <- err
		}()
	}
	mustEnd(t, errs, context.DeadlineExceeded)
}

func TestCloseEndsAPause(t *testing.T) {
	daemon := startFake(t)
	daemon.stop()
	failed := make(chan bool, 100)
	times := longTimes()
	times.backoffMin, times.backoffMax = time.Hour, time.Hour
	client := newClient(t, Options{Endpoints: []string{daemon.address}, times: times, OnEvent: func(Event) { failed <- true }})
	errs := make(chan error, 1)
	go func() { errs <- bothCalls(client)["Next"](background) }()
	<-failed
	must(t, client.Close())
	mustEnd(t, errs, ErrClosed)
}

func TestDroppedClientsFreeSocketsAndGoroutines(t *testing.T) {
	daemon := startFake(t)
	before := runtime.NumGoroutine()
	for i := 0; i < 50; i++ {
		client, err := New(Options{Endpoints: []string{daemon.address, daemon.address}})
		must(t, err)
		if _, err := client.Next(background); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "every connection and goroutine has ended", func() bool {
		runtime.GC()
		return daemon.openCount() == 0 && runtime.NumGoroutine() <= before+1
	})
}

func TestOneDeadlineCoversAllTries(t *testing.T) {
	silent, gone := startFake(t), startFake(t)
	silent.set(func(d *fakeDaemon) { d.isSilent = true })
	gone.stop()
	times := longTimes()
	times.answer = 30 * time.Millisecond
	client := newClient(t, Options{Endpoints: []string{silent.address, gone.address}, Timeout: 600 * time.Millisecond, times: times})
	for name, call := range bothCalls(client) {
		err := call(background)
		var deadline *DeadlineError
		if !errors.As(err, &deadline) || !errors.Is(err, context.DeadlineExceeded) || deadline.Allowed > 600*time.Millisecond {
			t.Errorf("%s: %v", name, err)
		}
		for _, address := range []string{silent.address, gone.address} {
			if !strings.Contains(err.Error(), address) {
				t.Errorf("%s: %s is not named: %v", name, address, err)
			}
		}
	}
}

func TestEndpointThatDoesNotGreetIsLeftForTheNext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	daemon := startFake(t)
	times := longTimes()
	times.connect = 50 * time.Millisecond
	failures := make(chan Event, 10)
	client := newClient(t, Options{Endpoints: []string{silent.Addr().String(), daemon.address}, PreferFirst: true, times: times,
		OnEvent: func(e Event) {
			if e.Kind == Failed {
				failures <- e
			}
		}})
	if id, err := client.Next(background); err != nil || !daemon.owns(id) {
		t.Errorf("%d, %v", id, err)
	}
	if e := <-failures; e.Endpoint != silent.Addr().String() || !strings.Contains(e.Err.Error(), "such as a Redis") {
		t.Error(e)
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
	must(t, os.WriteFile(file, []byte("first\n"), 0o600))
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, TokenFile: file})
	must(t, client.Ping(background))
	must(t, os.WriteFile(file, []byte("second\n"), 0o600))
	daemon.set(func(d *fakeDaemon) {
		for socket := range d.open {
			socket.Close()
		}
	})
	must(t, client.Ping(background))
	if tokens := fmt.Sprint(daemon.tokens); tokens != "[first second]" {
		t.Error(tokens)
	}
	must(t, os.WriteFile(file, []byte("one\ntwo\n"), 0o600))
	if _, err := New(Options{Endpoints: []string{daemon.address}, TokenFile: file}); err == nil ||
		!strings.Contains(err.Error(), "the end of a line at byte 3") {
		t.Errorf("two lines: %v", err)
	}
}

func TestATokenFileThatIsGoneIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("first\n"), 0o600))
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, TokenFile: file, Timeout: time.Second})
	must(t, os.Remove(file))
	if err := client.Ping(background); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestCertificatesOfEveryKind(t *testing.T) {
	folder := t.TempDir()
	files := func(name string) (certificate tls.Certificate, certFile, keyFile string) {
		certFile, keyFile = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
		return selfSigned(t, name, certFile, keyFile), certFile, keyFile
	}
	ours, ourFile, ourKey := files("ids.internal")
	_, otherFile, otherKey := files("other.internal")
	pool := x509.NewCertPool()
	text, err := os.ReadFile(ourFile)
	must(t, err)
	pool.AppendCertsFromPEM(text)
	plain := startFake(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ours},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			go plain.serve(socket)
		}
	}()
	endpoint := "tls:" + listener.Addr().String()
	for _, try := range []struct {
		endpoint string
		options  Options
		fits     func(error) bool
	}{
		{endpoint, Options{CAFile: ourFile, CertFile: ourFile, KeyFile: ourKey}, func(err error) bool { return errors.As(err, &x509.HostnameError{}) }},
		{endpoint, Options{CAFile: otherFile, CertFile: ourFile, KeyFile: ourKey, ServerName: "ids.internal"},
			func(err error) bool { return errors.As(err, &x509.UnknownAuthorityError{}) }},
		{endpoint, Options{CAFile: ourFile, CertFile: otherFile, KeyFile: otherKey, ServerName: "ids.internal"},
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		{endpoint, Options{CAFile: ourFile, ServerName: "ids.internal"}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		{"tls:" + plain.address, Options{}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		{endpoint, Options{CAFile: ourFile, CertFile: ourFile, KeyFile: ourKey, ServerName: "ids.internal", Timeout: time.Minute},
			func(err error) bool { return err == nil }},
	} {
		try.options.Endpoints = []string{try.endpoint}
		if try.options.Timeout == 0 {
			try.options.Timeout = 500 * time.Millisecond
		}
		_, err := newClient(t, try.options).Batch(background, 1)
		if !try.fits(err) || err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(try.endpoint, "tls:")) {
			t.Errorf("%v: %v", try.options, err)
		}
	}
}

func selfSigned(t *testing.T, name, certFile, keyFile string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(t, err)
	return pair
}

func TestManyGoroutinesShareAConnection(t *testing.T) {
	daemon := startFake(t)
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
	if count := daemon.openCount(); count != 1 {
		t.Errorf("%d connections", count)
	}
}

func TestServersOfOtherProtocolsAreNamed(t *testing.T) {
	welcome := appendWelcome(helloTag, 1_000, 1_000, 1)
	later := append([]byte(nil), welcome...)
	later[headSize] = 2
	for answer, name := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n":                   `it answers "HTTP/1.1 400 Bad Request"`,
		"<html>\r\n":                                         `it answers "<html>"`,
		"-ERR unknown command\r\n":                           `it answers "-ERR unknown command"`,
		"SSH-2.0-OpenSSH_9.2\r\n":                            `it answers "SSH-2.0-OpenSSH_9.2"`,
		"\x15\x03\x01\x00\x02\x02\x0a":                       "write tls:host:port",
		"\x00\x00\x00\x00":                                   "a length of 0; 4 to 65536",
		string(later):                                        "version 2 of the protocol",
		string(appendHead(nil, kindWelcome, 0, helloTag, 0)): "its WELCOME has 0 bytes",
		string(appendWelcome(helloTag+1, 1_000, 1_000, 1)):   "a reply with tag 2 where 1 is due",
		string(appendWelcome(helloTag, 0, 1_000, 1)):         "allows no IDs",
		string(append(appendHead(nil, kindWelcome, 0, 1, 20), make([]byte, 20)...)): "its WELCOME has 20 bytes",
		string(append(appendHead(nil, kindError, 0, 1, 4), make([]byte, 4)...)):     "an ERROR with 4 bytes",
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
		client := newClient(t, Options{Endpoints: []string{listener.Addr().String()}, Timeout: time.Second})
		_, err = client.Next(background)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q was due: %v", name, err)
		}
		daemon := startFake(t)
		client = newClient(t, Options{Endpoints: []string{listener.Addr().String(), daemon.address}})
		if _, err = client.Next(background); err != nil {
			t.Error(err)
		}
	}
}

func TestWelcomeWithEightThousandClaims(t *testing.T) {
	daemon := startFake(t)
	for claim := uint64(0); claim < 8_000; claim++ {
		daemon.claims = append(daemon.claims, claim<<40)
	}
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	if _, err := client.Next(background); err != nil {
		t.Error(err)
	}
}

// TestWireVectors has the vectors of the protocol's page.
func TestWireVectors(t *testing.T) {
	for _, vector := range []struct {
		made []byte
		hex  string
	}{
		{appendRequest(nil, 258, request{kind: kindNext, count: 3, text: "orders"}, 0),
			"10000000 01 00 0201 03000000 0000 6f7264657273"},
		{appendRequest(nil, 7, request{kind: kindNext, count: 1000, isFetch: true}, 50*time.Millisecond),
			"0a000000 01 02 0700 e8030000 3200"},
		{appendRequest(nil, helloTag, request{kind: kindHello}, 0), "0e000000 04 00 0100 534e4f570d0a0d0a 01 00"},
		{appendRun(7, 1541815603606036480, 1000), "14000000 81 00 0700 00a017621fa16515 e8030000 01000000"},
	} {
		if made := fmt.Sprintf("%x", vector.made); made != strings.ReplaceAll(vector.hex, " ", "") {
			t.Errorf("%s was due: %s", vector.hex, made)
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
	asked := request{kind: kindNext, count: 3}
	for _, bad := range []struct {
		asked  request
		frames []frame
		says   string
	}{
		{asked, []frame{{kind: kindRuns, body: run(1, 4, 1)}}, "more than the 3 IDs"},
		{asked, []frame{{kind: kindRuns, body: run(1, 3, 1), flags: flagMore}, {kind: kindRuns, body: run(9, 1, 1)}}, "more than the 3 IDs"},
		{asked, []frame{{kind: kindRuns, body: run(5, 1, 1), flags: flagMore}, {kind: kindRuns, body: run(5, 2, 1)}}, "do not increase"},
		{asked, []frame{{kind: kindRuns, body: run(1<<63, 3, 1)}}, "exceed 63 bits"},
		{asked, []frame{{kind: kindRuns, body: run(1<<63-2, 3, 1)}}, "exceed 63 bits"},
		{asked, []frame{{kind: kindRuns, body: run(1, 3, 0)}}, "a stride of 0"},
		{asked, []frame{{kind: kindRuns, body: nil}}, "0 bytes of IDs"},
		{asked, []frame{{kind: kindList, body: list}}, "has 1 IDs and 3"},
		{asked, []frame{{kind: kindList, body: list[1:]}}, "7 bytes of IDs"},
		{asked, []frame{{kind: kindRuns, body: run(1, 0, 1)}}, "a run of 0 IDs"},
		{asked, []frame{{kind: kindRuns, body: run(1, 1, 1), flags: flagMore}, {kind: kindList, body: list}}, "wrong kind"},
		{asked, []frame{{kind: kindPong}}, "wrong kind"},
		{request{kind: kindPing}, []frame{{kind: kindRuns, body: run(1, 1, 1)}}, "wrong kind"},
	} {
		c := collector{asked: bad.asked}
		var err error
		for i := range bad.frames {
			_, err = c.add(&bad.frames[i])
		}
		if err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%q was due: %v", bad.says, err)
		}
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte("\x14\x00\x00\x00\x81\x00\x07\x00\x00\xa0\x17\x62\x1f\xa1\x65\x15\xe8\x03\x00\x00\x01\x00\x00\x00"), uint32(1000))
	f.Add([]byte("\x0c\x00\x00\x00\x82\x01\x07\x00\x01\x00\x00\x00\x00\x00\x00\x00"), uint32(2))
	f.Add([]byte("\x0c\x00\x00\x00\xff\x00\x07\x00\x06\x00\x00\x00\xb0\x04\x00\x00"), uint32(1))
	f.Add(appendWelcome(1, 1_000, 1_000, 7, 1, 2), uint32(1))
	f.Add([]byte("HTTP/1.1 400"), uint32(1))
	f.Fuzz(func(t *testing.T, arrived []byte, count uint32) {
		count = count%10_000 + 1
		r := bufio.NewReader(bytes.NewReader(arrived))
		c := collector{asked: request{kind: kindNext, count: count, isFetch: true}}
		for {
			frame, err := readFrame(r)
			if err != nil {
				break
			}
			if frame.kind == kindError {
				frame.refusal("ids-1:7660")
			} else if w, err := readWelcome(&frame); err == nil && (w.maxCount == 0 || len(w.claims) > lengthMax/claimSize) {
				t.Error("a WELCOME that allows no IDs, or with claims that do not fit")
			} else if isDone, err := c.add(&frame); isDone || err != nil {
				break
			}
		}
		if len(c.ids) > int(count) {
			t.Errorf("%d IDs, and %d were asked for", len(c.ids), count)
		}
		for i := 1; i < len(c.ids); i++ {
			if c.ids[i] <= c.ids[i-1] {
				t.Errorf("%d follows %d", c.ids[i], c.ids[i-1])
			}
		}
	})
}
