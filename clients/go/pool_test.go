package snowbank

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTurnsGoRound(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	client := newClient(t, Options{Endpoints: addresses(daemons), TakeTurns: true})
	for i := 0; i < 9; i++ {
		if id := single(t, client); !daemons[i%3].owns(id) {
			t.Errorf("call %d had the ID %d of another daemon", i, id)
		}
	}
}

func TestSickDaemonIsLeftAndTakenBack(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	client := newClient(t, Options{Endpoints: addresses(daemons), TakeTurns: true})
	single(t, client)
	single(t, client)
	daemons[0].stop()
	for i := 0; i < 10; i++ {
		if id := single(t, client); !daemons[1].owns(id) {
			t.Errorf("the ID %d of a daemon that is gone", id)
		}
	}
	if errs := client.EndpointErrors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), daemons[0].address) {
		t.Errorf("the endpoint that failed is not named: %v", errs)
	}
	daemons[0].listen(t, daemons[0].address)
	eventually(t, "the daemon that is back serves", func() bool { return daemons[0].owns(single(t, client)) })
	if errs := client.EndpointErrors(); len(errs) != 0 {
		t.Errorf("errors of endpoints that serve: %v", errs)
	}
}

// fakeNames is a service of names. Its addresses can change.
type fakeNames struct {
	mu  sync.Mutex
	ips []string
	err error
	// asked counts the lookups.
	asked int
}

func (n *fakeNames) lookup(context.Context, string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return append([]string(nil), n.ips...), n.err
}

func (n *fakeNames) set(ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ips = ips
}

func (n *fakeNames) environment() *environment {
	e := realEnvironment()
	e.lookup = n.lookup
	return e
}

// startNamed starts two daemons with one port on two addresses.
func startNamed(t *testing.T) (daemons []*fakeDaemon, endpoint string) {
	t.Helper()
	one := startFake(t, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(one.address)
	must(t, err)
	return []*fakeDaemon{one, startFake(t, "127.0.0.2:"+port)}, "ids.internal:" + port
}

func TestAllAddressesOfANameAreUsed(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{ips: []string{"127.0.0.1", "127.0.0.2"}}
	client := newClient(t, Options{Endpoints: []string{endpoint}, TakeTurns: true, environment: names.environment()})
	eventually(t, "an ID of the one", func() bool { return daemons[0].owns(single(t, client)) })
	eventually(t, "an ID of the other", func() bool { return daemons[1].owns(single(t, client)) })
	daemons[0].stop()
	for i := 0; i < 10; i++ {
		single(t, client)
	}
	if errs := client.EndpointErrors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), endpoint+" (127.0.0.1)") {
		t.Errorf("the address that failed is not named: %v", errs)
	}
}

func TestClientsSpreadOverTheAddressesOfAName(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{ips: []string{"127.0.0.1", "127.0.0.2"}}
	for i := 0; i < 100; i++ {
		client := newClient(t, Options{Endpoints: []string{endpoint}, environment: names.environment()})
		single(t, client)
	}
	for i, d := range daemons {
		if count := d.requestCount(); count < 10 {
			t.Errorf("%d of 100 clients came to address %d", count, i)
		}
	}
}

func TestPreferFirstKeepsTheOrderOfAName(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{ips: []string{"127.0.0.2", "127.0.0.1"}}
	for i := 0; i < 20; i++ {
		client := newClient(t, Options{Endpoints: []string{endpoint}, PreferFirst: true, environment: names.environment()})
		if id := single(t, client); !daemons[1].owns(id) {
			t.Fatalf("client %d had the ID %d of the second address", i, id)
		}
	}
}

func TestPreferFirstLooksUpAnEarlierName(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{err: errors.New("no answer")}
	client := newClient(t, Options{Endpoints: []string{endpoint, daemons[1].address}, PreferFirst: true,
		environment: names.environment()})
	if id := single(t, client); !daemons[1].owns(id) {
		t.Fatalf("the ID %d of a name without addresses", id)
	}
	names.mu.Lock()
	names.ips, names.err = []string{"127.0.0.1"}, nil
	names.mu.Unlock()
	eventually(t, "the first endpoint serves", func() bool { return daemons[0].owns(single(t, client)) })
}

func TestPreferFirstUsesAnEarlierNameAtItsNewAddress(t *testing.T) {
	daemons, endpoint := startNamed(t)
	other := startFake(t, "127.0.0.1:0")
	names := &fakeNames{ips: []string{"127.0.0.1"}}
	client := newClient(t, Options{Endpoints: []string{endpoint, other.address}, PreferFirst: true,
		environment: names.environment()})
	if id := single(t, client); !daemons[0].owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
	daemons[0].stop()
	if id := single(t, client); !other.owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
	names.set("127.0.0.2")
	eventually(t, "the daemon at the new address serves", func() bool { return daemons[1].owns(single(t, client)) })
}

func TestNameIsLookedUpAgain(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{ips: []string{"127.0.0.1"}}
	client := newClient(t, Options{Endpoints: []string{endpoint}, environment: names.environment()})
	if id := single(t, client); !daemons[0].owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
	// The daemon moves to another address.
	names.set("127.0.0.2")
	daemons[0].stop()
	if id := single(t, client); !daemons[1].owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
}

func TestNameThatCannotBeLookedUpKeepsItsAddresses(t *testing.T) {
	daemons, endpoint := startNamed(t)
	names := &fakeNames{ips: []string{"127.0.0.1", "127.0.0.2"}}
	client := newClient(t, Options{Endpoints: []string{endpoint}, environment: names.environment()})
	serves, waits := daemons[0], daemons[1]
	if waits.owns(single(t, client)) {
		serves, waits = waits, serves
	}
	names.mu.Lock()
	names.err = errors.New("no answer")
	names.mu.Unlock()
	serves.stop()
	if id := single(t, client); !waits.owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
}

func TestUnknownNameIsSaid(t *testing.T) {
	names := &fakeNames{err: &net.DNSError{Err: "no such host", Name: "ids.internal"}}
	client := newClient(t, Options{Endpoints: []string{"ids.internal:7660"}, Timeout: 4 * time.Second,
		environment: names.environment()})
	_, err := client.Next(background)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "ids.internal:7660: the name cannot be looked up: no such host") {
		t.Error(err)
	}
	var name *net.DNSError
	if !errors.As(err, &name) {
		t.Errorf("the system's error is lost: %v", err)
	}
}

func TestEqualWorkerIDsStopEveryCall(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	daemons[1].set(func(d *fakeDaemon) { d.workers = "4, " + daemons[0].workers })
	client := newClient(t, Options{Endpoints: addresses(daemons), MaxAge: time.Minute})
	for i := 0; i < 10_000; i++ {
		draw(t, client)
	}
	var same *SameWorkerIDsError
	eventually(t, "the error", func() bool {
		_, err := client.Batch(background, 1)
		return errors.As(err, &same)
	})
	if same.One != daemons[0].address || same.Other != daemons[1].address || fmt.Sprint(same.WorkerID) != daemons[0].workers {
		t.Errorf("%+v", same)
	}
	if id, err := client.Next(background); !errors.As(err, &same) {
		t.Errorf("the ID %d was left in the buffer: %v", id, err)
	}
	daemons[1].set(func(d *fakeDaemon) { d.workers = "4" })
	eventually(t, "calls succeed again", func() bool {
		_, err := client.Next(background)
		return err == nil
	})
}

// TestOneLookIsNoCollision lets a daemon have another one's worker ID at the first look alone, as
// in a restart.
func TestOneLookIsNoCollision(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	daemons[1].set(func(d *fakeDaemon) { d.workers, d.laterWorkers = daemons[0].workers, "4" })
	client := newClient(t, Options{Endpoints: addresses(daemons)})
	looks := func() (count int) {
		daemons[1].set(func(d *fakeDaemon) { count = d.infos })
		return count
	}
	for looks() < 2 {
		single(t, client)
	}
}

func TestOneDaemonAtTwoAddressesIsNoCollision(t *testing.T) {
	info := func(instance, layout string, workers ...uint64) *Info {
		return &Info{Instance: instance, Sources: []SourceInfo{{Layout: layout, WorkerIDs: workers}}}
	}
	for _, pair := range []struct {
		one, other *Info
		isShared   bool
	}{
		{info("a", "l", 1, 2), info("b", "l", 2, 3), true},
		{info("a", "l", 1), info("a", "l", 1), false},
		{info("a", "l", 1), info("b", "l", 2), false},
		{info("a", "l", 1), info("b", "other", 1), false},
		{info("", "l", 1), info("b", "l", 1), false},
		{info("a", "", 1), info("b", "", 1), false},
	} {
		if _, _, isShared := sharedWorkerID(pair.one, pair.other); isShared != pair.isShared {
			t.Errorf("%v and %v: %v", pair.one, pair.other, isShared)
		}
	}
}

func TestBackoffGrowsToItsLimitAndVaries(t *testing.T) {
	client := newClient(t, Options{Endpoints: []string{"127.0.0.1:1"}})
	for _, at := range []struct{ failures, limitMS int }{{0, 50}, {1, 50}, {2, 100}, {5, 800}, {9, 5000}, {1 << 60, 5000}} {
		limit, longest, seen := milliseconds(at.limitMS), time.Duration(0), map[time.Duration]bool{}
		for i := 0; i < 300; i++ {
			pause := client.pool.backoff(at.failures)
			seen[pause] = true
			if pause > longest {
				longest = pause
			}
		}
		if longest > limit || longest < limit/2 || len(seen) < 100 {
			t.Errorf("%d failures: up to %s, %d different ones", at.failures, longest, len(seen))
		}
	}
	one, other := newDice(), newDice()
	if one.upTo(time.Hour) == other.upTo(time.Hour) {
		t.Error("two clients have the same chance")
	}
}

func TestAnAnswerSetsTheBackoffBack(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	for i := 0; i < 5; i++ {
		single(t, client)
		daemon.set(func(d *fakeDaemon) {
			for socket := range d.open {
				socket.Close()
			}
		})
		eventually(t, "the connection is lost", func() bool { return len(client.EndpointErrors()) == 1 })
	}
	client.pool.mu.Lock()
	defer client.pool.mu.Unlock()
	if failures := client.pool.targets[0].failures; failures != 1 {
		t.Errorf("%d failures in a row, with an answer after each", failures)
	}
}

func TestOthersComeFirstHoweverShortTheBackoff(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	daemons[0].set(func(d *fakeDaemon) { d.isSilent = true })
	client := newClient(t, Options{Endpoints: addresses(daemons), AnswerTimeout: 4 * time.Second, MinBackoff: 1, MaxBackoff: 1})
	if _, err := client.Batch(background, 1, MaxWait(0)); err != nil {
		t.Error(err)
	}
	if count := daemons[0].requestCount(); count != 1 {
		t.Errorf("the daemon that does not answer was asked %d times", count)
	}
}

func TestExhaustedDaemonIsLeftForTheNext(t *testing.T) {
	daemons := []*fakeDaemon{startFake(t, "127.0.0.1:0"), startFake(t, "127.0.0.1:0")}
	for _, d := range daemons {
		d.set(func(d *fakeDaemon) { d.retryAfterMS = 600_000 })
	}
	daemons[0].set(func(d *fakeDaemon) { d.retryAfterMS = 500_000 })
	client := newClient(t, Options{Endpoints: addresses(daemons)})
	_, err := client.Batch(background, 1)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != ErrExhausted || refused.RetryAfter != 500*time.Second {
		t.Errorf("the soonest was due: %v", err)
	}
	daemons[1].set(func(d *fakeDaemon) { d.retryAfterMS = 0 })
	if id := single(t, client); !daemons[1].owns(id) {
		t.Errorf("the ID %d of another daemon", id)
	}
}

func addresses(daemons []*fakeDaemon) (texts []string) {
	for _, d := range daemons {
		texts = append(texts, d.address)
	}
	return texts
}

// single fetches one ID without the buffer.
func single(t *testing.T, client *Client) int64 {
	t.Helper()
	ids, err := client.Batch(background, 1)
	must(t, err)
	return ids[0]
}
