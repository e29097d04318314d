package snowbank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// refuses makes a daemon refuse NEXT requests.
func (d *fakeDaemon) refuses(code Code, action Action, retryAfterMS uint32) {
	d.set(func(d *fakeDaemon) {
		d.onNext = func(tag uint16) []byte { return appendError(tag, code, action, retryAfterMS, "no\nIDs") }
	})
}

func twoDaemons(t *testing.T, options Options) (client *Client, daemons []*fakeDaemon) {
	t.Helper()
	daemons = []*fakeDaemon{startFake(t), startFake(t)}
	for _, daemon := range daemons {
		options.Endpoints = append(options.Endpoints, daemon.address)
	}
	return newClient(t, options), daemons
}

func one(t *testing.T, client *Client) int64 {
	t.Helper()
	ids, err := client.Batch(background, 1)
	must(t, err)
	return ids[0]
}

func TestTellIsToldAndUnknownActionsToo(t *testing.T) {
	client, daemons := twoDaemons(t, Options{PreferFirst: true})
	for _, action := range []Action{Tell, 7} {
		daemons[0].refuses(77, action, 0)
		_, err := client.Batch(background, 1)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Code != 77 || refused.Message != "no IDs" || refused.Action != action {
			t.Errorf("%v", err)
		}
	}
	if len(daemons[1].nextCounts()) != 0 {
		t.Error("another daemon was asked")
	}
}

func TestStayAsksAgainOnTheSameConnection(t *testing.T) {
	times := usualTimes()
	times.firstRound = time.Hour // A round greets too.
	client, daemons := twoDaemons(t, Options{PreferFirst: true, times: times})
	daemons[0].refuses(ErrExhausted, Stay, 20)
	go func() {
		for len(daemons[0].nextCounts()) < 3 {
			time.Sleep(time.Millisecond)
		}
		daemons[0].set(func(d *fakeDaemon) { d.onNext = nil })
	}()
	if id := one(t, client); !daemons[0].owns(id) || daemons[0].hellos != 1 {
		t.Errorf("%d, after %d greetings", id, daemons[0].hellos)
	}
	if stats := client.Stats(); stats.Refusals != 3 || stats.Retries != 3 || stats.Calls != 1 || stats.Failures != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestLeaveAsksTheNext(t *testing.T) {
	client, daemons := twoDaemons(t, Options{PreferFirst: true})
	daemons[0].refuses(ErrNoCeiling, Leave, 60_000)
	for i := 0; i < 3; i++ {
		if id := one(t, client); !daemons[1].owns(id) {
			t.Errorf("%d", id)
		}
	}
	if count := len(daemons[0].nextCounts()); count != 1 {
		t.Errorf("the first daemon was asked %d times", count)
	}
	eventually(t, "the connection has ended", func() bool { return daemons[0].openCount() == 0 })
}

func TestALoneEndpointIsConnectedAgainAtOnce(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, Timeout: 4 * time.Second})
	daemon.set(func(d *fakeDaemon) {
		d.onNext = func(tag uint16) []byte {
			d.onNext = nil
			return appendError(tag, ErrShuttingDown, Leave, 3_000, "")
		}
	})
	began := time.Now()
	one(t, client)
	if took := time.Since(began); took > 900*time.Millisecond || daemon.hellos != 2 {
		t.Errorf("%s, %d greetings", took, daemon.hellos)
	}
}

func TestARefusalBeyondTheDeadlineIsToldWhenAllWereAsked(t *testing.T) {
	client, daemons := twoDaemons(t, Options{Timeout: 5 * time.Second})
	for i, daemon := range daemons {
		daemon.refuses(ErrExhausted, []Action{Stay, Leave}[i], 60_000-10_000*uint32(i))
	}
	began := time.Now()
	_, err := client.Batch(background, 1)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.RetryAfter != 50*time.Second || time.Since(began) > 4*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if len(daemons[0].nextCounts()) != 1 || len(daemons[1].nextCounts()) != 1 {
		t.Error("a daemon was not asked once")
	}
	daemons[1].stop()
	if _, err = client.Batch(background, 1); !errors.Is(err, ErrExhausted) {
		t.Errorf("with the other daemon down: %v", err)
	}
}

func TestATokenThatIsRefusedIsToldToAllCalls(t *testing.T) {
	daemon := startFake(t)
	daemon.helloReply = func(tag uint16) []byte { return appendError(tag, ErrUnauthorized, Tell, 0, "token wrong") }
	client := newClient(t, Options{Endpoints: []string{daemon.address}, Token: "old"})
	for name, call := range bothCalls(client) {
		if err := call(background); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooBusyAndTag0GoOnToTheNext(t *testing.T) {
	client, daemons := twoDaemons(t, Options{PreferFirst: true})
	daemons[0].helloReply = func(uint16) []byte { return appendError(0, ErrTooBusy, Leave, 1_000, "10000 connections") }
	if id := one(t, client); !daemons[1].owns(id) {
		t.Errorf("%d", id)
	}
	daemons[0].set(func(d *fakeDaemon) { d.helloReply = nil })
	daemons[1].set(func(d *fakeDaemon) {
		d.onNext = func(uint16) []byte { return appendError(0, ErrUnauthorized, Leave, 0, "the token was taken away") }
	})
	if id := one(t, client); !daemons[0].owns(id) {
		t.Errorf("%d", id)
	}
}

func TestWrongTagsAndUnknownKindsFailTheConnection(t *testing.T) {
	for name, answer := range map[string]func(tag uint16) []byte{
		"wrong tag":    func(tag uint16) []byte { return appendRun(tag+1, 1, 1) },
		"unknown kind": func(tag uint16) []byte { return appendHead(nil, 0x99, 0, tag, 0) },
		"two replies":  func(tag uint16) []byte { return append(appendRun(tag, 1, 2), appendRun(tag, 3, 2)...) },
		"cut":          func(tag uint16) []byte { return appendRun(tag, 1, 1)[:10] },
		"an ERROR after MORE": func(tag uint16) []byte {
			run := appendRun(tag, 1, 1)
			run[5] = flagMore
			return append(run, appendError(tag, ErrExhausted, Stay, 0, "")...)
		},
	} {
		times := longTimes()
		times.answer = 100 * time.Millisecond
		client, daemons := twoDaemons(t, Options{PreferFirst: true, times: times})
		daemons[0].set(func(d *fakeDaemon) { d.onNext = answer })
		ids, err := client.Batch(background, 2)
		if err == nil && name == "two replies" {
			ids, err = client.Batch(background, 2)
		}
		if err != nil || !daemons[1].owns(ids[0]) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
}

func TestACancelledCallKeepsItsPlace(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	hold := make(chan struct{})
	daemon.onNext = func(tag uint16) []byte {
		<-hold
		daemon.onNext = nil
		return appendRun(tag, 1, 1)
	}
	ctx, cancel := context.WithCancel(background)
	ended := make(chan error, 1)
	go func() {
		_, err := client.Batch(ctx, 1)
		ended <- err
	}()
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	next := make(chan int64, 1)
	go func() { next <- one(t, client) }()
	close(hold)
	if id := <-next; id == 1 {
		t.Error("the next call got the reply of the cancelled one")
	}
	if stats := client.Stats(); stats.Dropped != 1 || daemon.hellos != 1 {
		t.Errorf("%+v, %d greetings", stats, daemon.hellos)
	}
}

func TestAStoppedDaemonIsLeftAfterTheTimeForAnAnswer(t *testing.T) {
	times := longTimes()
	times.answer = 100 * time.Millisecond
	client, daemons := twoDaemons(t, Options{PreferFirst: true, times: times})
	must(t, client.Ping(background))
	daemons[0].set(func(d *fakeDaemon) { d.isSilent = true })
	ids, err := client.Batch(background, 1)
	if err != nil || !daemons[1].owns(ids[0]) {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestBackoffGrowsToItsLimitVariesAndIsReset(t *testing.T) {
	client := newClient(t, Options{Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2"}, times: usualTimes()})
	c := client.core
	e := c.endpoints[0]
	longest := time.Duration(0)
	rests := map[time.Duration]bool{}
	for i := 0; i < 300; i++ {
		c.rest(e, ErrLost)
		rest := time.Until(e.restsUntil)
		limit := 50 * time.Millisecond << min(i, 10)
		if rest > limit || rest > time.Second {
			t.Fatalf("a rest of %s after %d failures", rest, i+1)
		}
		rests[rest.Round(time.Millisecond)] = true
		longest = max(longest, rest)
	}
	if longest < 800*time.Millisecond || len(rests) < 150 {
		t.Errorf("the longest of %d rests is %s", len(rests), longest)
	}
	if e.note(nil); e.failures != 0 {
		t.Error("an answer does not reset the back-off")
	}
	for i := 0; i < 100; i++ {
		c.rest(e, &RefusedError{Action: Leave, RetryAfter: 5 * time.Second})
		if rest := time.Until(e.restsUntil); rest < 990*time.Millisecond || rest > 2*time.Second {
			t.Errorf("a rest of %s after a refusal with 5s", rest)
		}
	}
}

func TestALoneEndpointDoesNotRestTheFirstTime(t *testing.T) {
	c := newClient(t, Options{Endpoints: []string{"127.0.0.1:1"}}).core
	e := c.endpoints[0]
	if c.rest(e, &RefusedError{Action: Leave, RetryAfter: time.Second}); time.Until(e.restsUntil) > 0 {
		t.Error("it rests after its first failure")
	}
	if c.rest(e, &RefusedError{Action: Leave, RetryAfter: time.Second}); time.Until(e.restsUntil) < 900*time.Millisecond {
		t.Error("it does not rest after its second failure")
	}
}

func TestTurnsGoRoundAndSkipWhoRests(t *testing.T) {
	client, daemons := twoDaemons(t, Options{TakeTurns: true})
	count := func(calls int) (first int) {
		for i := 0; i < calls; i++ {
			if daemons[0].owns(one(t, client)) {
				first++
			}
		}
		return first
	}
	if first := count(20); first != 10 {
		t.Errorf("%d of 20", first)
	}
	address := daemons[0].address
	daemons[0].stop()
	if first := count(20); first != 0 {
		t.Errorf("%d of 20 from a daemon that is down", first)
	}
	daemons[0].listen(t, address)
	eventually(t, "a daemon that is back gets its turns", func() bool { return count(2) == 1 })
	daemons[0].refuses(ErrNoCeiling, Leave, 60_000)
	daemons[1].refuses(ErrNoCeiling, Stay, 50_000)
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	_, err := client.Batch(ctx, 1)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.RetryAfter != 50*time.Second {
		t.Errorf("%v", err)
	}
}

func TestInTurnsAnEndpointThatSaysStayRests(t *testing.T) {
	client, daemons := twoDaemons(t, Options{TakeTurns: true})
	daemons[0].refuses(ErrExhausted, Stay, 1_000)
	began := time.Now()
	for i := 0; i < 10; i++ {
		one(t, client)
	}
	count, took := len(daemons[0].nextCounts()), time.Since(began)
	if count != 1 || took > 900*time.Millisecond || daemons[0].hellos != 1 || daemons[0].openCount() != 1 {
		t.Errorf("it was asked %d times in %s, and greeted %d times", count, took, daemons[0].hellos)
	}
}

func TestInTurnsAStayBeyondTheDeadlineRestsToo(t *testing.T) {
	client, daemons := twoDaemons(t, Options{TakeTurns: true})
	for _, daemon := range daemons {
		daemon.refuses(ErrExhausted, Stay, 50_000)
	}
	// Both rest for a second or more after the first call.
	for _, timeout := range []time.Duration{10 * time.Second, 200 * time.Millisecond, 200 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(background, timeout)
		if _, err := client.Batch(ctx, 1); !errors.Is(err, ErrExhausted) {
			t.Error(err)
		}
		cancel()
	}
	if first, second := len(daemons[0].nextCounts()), len(daemons[1].nextCounts()); first != 1 || second != 1 {
		t.Errorf("%d and %d requests", first, second)
	}
}

// fakeNames resolves every name to the same addresses.
type fakeNames struct {
	mu  sync.Mutex
	ips []string
}

func (n *fakeNames) lookup(context.Context, string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.ips...), nil
}

func TestACallThatConnectedAsksBeforeItsNextTurn(t *testing.T) {
	healthy, silent := startFake(t), startFake(t)
	silent.helloReply = func(uint16) []byte { return nil }
	times := longTimes()
	times.connect = 20 * time.Second
	client := newClient(t, Options{Endpoints: []string{healthy.address, silent.address}, TakeTurns: true, times: times})
	// The first one has its turn.
	client.core.current = 0
	began := time.Now()
	one(t, client)
	if took := time.Since(began); took > 10*time.Second {
		t.Error(took)
	}
}

func TestANameIsResolvedForEachConnection(t *testing.T) {
	daemon := startFake(t)
	_, port, err := net.SplitHostPort(daemon.address)
	must(t, err)
	names := &fakeNames{ips: []string{"127.0.0.3", "127.0.0.1", "127.0.0.2"}}
	times := longTimes()
	times.lookup = names.lookup
	client := newClient(t, Options{Endpoints: []string{"ids.internal:" + port}, times: times})
	p := client.core.endpoints[0]
	starts := map[string]bool{}
	for i := 0; i < 100; i++ {
		p.lastIP = ""
		ips, err := client.core.resolve(background, p)
		must(t, err)
		starts[ips[0]] = true
	}
	if len(starts) != 3 {
		t.Errorf("the first address is one of %v", starts)
	}
	for last, next := range map[string]string{"127.0.0.1": "127.0.0.2", "127.0.0.3": "127.0.0.1", "127.0.0.25": "127.0.0.3"} {
		p.lastIP = last
		if ips, _ := client.core.resolve(background, p); ips[0] != next || len(ips) != 3 {
			t.Errorf("%v after %s", ips, last)
		}
	}
	// Addresses where nobody listens are passed over in the same connection.
	names.ips = []string{"127.0.0.5", "127.0.0.1", "127.0.0.9"}
	p.lastIP = "127.0.0.1"
	one(t, client)
	if endpoint := client.Stats().Endpoint; endpoint != fmt.Sprintf("ids.internal:%s (127.0.0.1)", port) {
		t.Error(endpoint)
	}
}

// lateContext is a context whose timer has not rung yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }

func TestAnAddressWithoutTimeLeftIsNotTried(t *testing.T) {
	times := longTimes()
	times.lookup = (&fakeNames{ips: []string{"127.0.0.1", "127.0.0.2"}}).lookup
	client := newClient(t, Options{Endpoints: []string{"ids.internal:1"}, times: times})
	p := client.core.endpoints[0]
	if err := newConnection(client.core, p).open(lateContext{background}); err == nil || p.lastIP != "" {
		t.Errorf("%s counts as tried: %v", p.lastIP, err)
	}
}

func TestADialWithoutTimeForHelloIsAFailure(t *testing.T) {
	times := longTimes()
	times.connect = 200 * time.Millisecond
	client := newClient(t, Options{Endpoints: []string{startFake(t).address}, times: times})
	conn := newConnection(client.core, client.core.endpoints[0])
	conn.endpoint.connection = conn
	for i := 0; i < inFlightMax; i++ {
		// HELLO finds no place before the time ends.
		conn.slots <- struct{}{}
	}
	if err := conn.dial(); !errors.Is(err, ErrUnreachable) || client.Stats().Failures != 1 {
		t.Errorf("%v, %+v", err, client.Stats())
	}
}

func TestACallThatIsLateOnceItIsConnectedDrawsNothing(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	must(t, client.Ping(background))
	ctx, cancel := context.WithCancel(background)
	k, end := client.core.call(ctx, request{kind: kindNext, count: 1_000})
	defer end()
	cancel()
	for i := 0; i < 100; i++ {
		client.core.try(k)
	}
	one(t, client)
	if counts := daemon.nextCounts(); len(counts) != 1 {
		t.Errorf("%d requests", len(counts))
	}
}

func TestConnectedIsToldBeforeFailed(t *testing.T) {
	daemon := startFake(t)
	daemon.helloReply = func(tag uint16) []byte {
		// The second frame, in one packet with WELCOME, ends the connection.
		return append(appendWelcome(tag, 60_000, 1_000, 1), appendRun(tag, 1, 1)...)
	}
	told := make(chan EventKind, 100)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, OnEvent: func(e Event) {
		if e.Kind == Connected {
			time.Sleep(50 * time.Millisecond)
		}
		told <- e.Kind
	}})
	go client.Ping(background)
	if first, second := <-told, <-told; first != Connected || second != Failed {
		t.Errorf("%s, then %s", first, second)
	}
}

func TestNoCallWaitsForTheFunctionForEvents(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	client, daemons := twoDaemons(t, Options{PreferFirst: true, OnEvent: func(Event) { <-hold }})
	must(t, client.Ping(background))
	daemons[0].set(func(d *fakeDaemon) { d.onNext = func(tag uint16) []byte { return appendRun(tag+1, 1, 1) } })
	ids, err := client.Batch(background, 1)
	if err != nil || !daemons[1].owns(ids[0]) {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestEventsThatAreNotHeardAreLostBeyondAThousand(t *testing.T) {
	hold, heard := make(chan struct{}), make(chan Event, 2*eventsMax)
	client := newClient(t, Options{Endpoints: []string{"127.0.0.1:1"}, OnEvent: func(e Event) {
		<-hold
		heard <- e
	}})
	for i := 0; i < 2*eventsMax; i++ {
		client.core.event(Event{Kind: Connected, Endpoint: fmt.Sprint(i)})
	}
	close(hold)
	for i := 0; i < eventsMax; i++ {
		if e := <-heard; e.Endpoint != fmt.Sprint(i) {
			t.Fatalf("%s in place of %d", e.Endpoint, i)
		}
	}
	eventually(t, "its goroutine has ended", func() bool {
		client.core.telling.Lock()
		defer client.core.telling.Unlock()
		return !client.core.isTelling
	})
	if len(heard) > 1 {
		t.Errorf("%d more events", len(heard))
	}
}

func TestADialThatACloseEndsIsNoFailure(t *testing.T) {
	daemon := startFake(t)
	daemon.helloReply = func(uint16) []byte { return nil }
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	ended := make(chan error)
	go func() { ended <- client.Ping(background) }()
	eventually(t, "a greeting", func() bool { return daemon.openCount() == 1 })
	must(t, client.Close())
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	eventually(t, "the dial has ended", func() bool {
		client.core.mu.Lock()
		defer client.core.mu.Unlock()
		return client.core.endpoints[0].connection == nil
	})
	if stats := client.Stats(); stats.Failures != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestAnUnknownNameIsSaid(t *testing.T) {
	times := longTimes()
	times.resolve = time.Second
	client := newClient(t, Options{Endpoints: []string{"no-such-host.invalid:7660"}, Timeout: 3 * time.Second, times: times})
	_, err := client.Next(background)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no-such-host.invalid:7660") {
		t.Error(err)
	}
}

func TestAHugeTimeoutAndASource(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, Timeout: math.MaxInt64, Source: "orders"})
	one(t, client)
	if daemon.waits[0] != 1_000 || daemon.sources[0] != "orders" {
		t.Error(daemon.waits, daemon.sources)
	}
}
