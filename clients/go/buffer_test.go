package snowbank

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testAlarm checks that an alarm of the clock rings when its time has come, and not before.
func testAlarm(t *testing.T, c clock, newAlarm func(ring func()) alarm) {
	rang := make(chan time.Duration, 10)
	a := newAlarm(func() { rang <- c.now() })
	for i := 0; i < 3; i++ {
		at := c.now() + 20*time.Millisecond
		a.set(c.now() + time.Hour)
		a.set(at)
		select {
		case now := <-rang:
			if now < at {
				t.Errorf("it rang %s early", at-now)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it did not ring")
		}
	}
	a.set(c.now() - time.Second)
	select {
	case <-rang:
	case <-time.After(20 * time.Second):
		t.Fatal("it did not ring for a time that has passed")
	}
	a.set(c.now() + 50*time.Millisecond)
	a.stop()
	a.stop()
	a.set(c.now() + time.Millisecond)
	select {
	case <-rang:
		t.Error("it rang after its end")
	case <-time.After(100 * time.Millisecond):
	}
}

func TestAlarmOfTheMachine(t *testing.T) {
	testAlarm(t, bootClock{}, bootClock{}.newAlarm)
}

func TestAlarmInSteps(t *testing.T) {
	c := bootClock{}
	testAlarm(t, c, func(ring func()) alarm { return &goAlarm{clock: c, ring: ring} })
}

func TestOldIDsAreDropped(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}, MaxAge: 50 * time.Millisecond})
	first := draw(t, client)
	time.Sleep(60 * time.Millisecond)
	eventually(t, "the IDs left in the buffer are dropped", func() bool { return draw(t, client) > first+firstFetch })
}

// TestSleepOfTheMachineMakesIDsOld lets the machine sleep with IDs in the buffer, and with a
// request in flight.
func TestSleepOfTheMachineMakesIDsOld(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	clock := newFakeClock()
	environment := *realEnvironment()
	environment.clock = clock
	client := newClient(t, Options{Endpoints: []string{daemon.address}, MaxAge: time.Minute, AnswerTimeout: time.Minute,
		environment: &environment})
	first := draw(t, client)
	if second := draw(t, client); second != first+1 {
		t.Errorf("%d follows %d", second, first)
	}
	clock.advance(2 * time.Minute)
	third := draw(t, client)
	if third < first+firstFetch {
		t.Errorf("%d is older than the machine's sleep", third)
	}
	clock.advance(2 * time.Minute)
	// The daemon makes its IDs before the machine sleeps, and the reply comes afterwards.
	daemon.set(func(d *fakeDaemon) { d.beforeReply = func() { clock.advance(2 * time.Minute) } })
	highest := daemon.lastIDNow()
	if id := draw(t, client); id <= highest+1 {
		t.Errorf("%d was made before the machine's sleep", id)
	}
}

func draw(t *testing.T, client *Client) int64 {
	t.Helper()
	id, err := client.Next(background)
	must(t, err)
	return id
}

// TestEachIDIsTakenOnce takes a large stock apart by several goroutines, with no network that would
// slow them down.
func TestEachIDIsTakenOnce(t *testing.T) {
	const count = 1_000_000
	client := newClient(t, Options{Endpoints: []string{"127.0.0.1:1"}})
	buffer := &client.main.buffer
	buffer.current.Store(&stock{ids: make([]int64, count), low: -1})
	for i := range buffer.current.Load().ids {
		buffer.current.Load().ids[i] = int64(i)
	}
	taken := make([]atomic.Int32, count)
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for id, isThere := buffer.take(); isThere; id, isThere = buffer.take() {
				taken[id].Add(1)
			}
		}()
	}
	all.Wait()
	for id := range taken {
		if times := taken[id].Load(); times != 1 {
			t.Fatalf("%d was taken %d times", id, times)
		}
	}
}

func TestFetchesFollowTheDemand(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	daemon.set(func(d *fakeDaemon) { d.maxCount = 3000 })
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	last := int64(0)
	for i := 0; i < 100_000; i++ {
		id := draw(t, client)
		if id <= last {
			t.Fatalf("%d follows %d", id, last)
		}
		last = id
	}
	daemon.mu.Lock()
	defer daemon.mu.Unlock()
	if daemon.counts[0] != 16 {
		t.Errorf("the first fetch asked for %d IDs", daemon.counts[0])
	}
	largest := uint32(0)
	for i, count := range daemon.counts {
		if i > 0 && count > growth*daemon.counts[i-1] {
			t.Errorf("a fetch of %d IDs after one of %d", count, daemon.counts[i-1])
		}
		if count <= daemon.maxCount && count > largest {
			largest = count
		}
	}
	if largest < 1000 {
		t.Errorf("the largest fetch asked for %d IDs", largest)
	}
}

func TestBufferIsRefilledAhead(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}, MaxAge: time.Minute, AnswerTimeout: time.Minute})
	for i := 0; i < firstFetch/2; i++ {
		draw(t, client)
	}
	if count := daemon.requestCount(); count != 1 {
		t.Errorf("%d requests for half of a batch", count)
	}
	draw(t, client)
	eventually(t, "the next batch is fetched ahead", func() bool { return daemon.requestCount() == 2 })
}

func TestScarceIDsAreWaitedFor(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	daemon.set(func(d *fakeDaemon) { d.retryAfterMS = 5 })
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	go func() {
		for daemon.requestCount() < 3 {
			time.Sleep(time.Millisecond)
		}
		daemon.set(func(d *fakeDaemon) { d.retryAfterMS = 0 })
	}()
	draw(t, client)
}

func TestIDsThatGoBackAreSkippedAndReportedOnce(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}, MaxAge: 20 * time.Millisecond})
	highest := draw(t, client)
	time.Sleep(40 * time.Millisecond)
	// A part of the daemon that is behind catches up.
	daemon.set(func(d *fakeDaemon) { d.lastID -= 4 })
	for i := 0; i < 5; i++ {
		id := draw(t, client)
		if id <= highest {
			t.Fatalf("%d follows %d", id, highest)
		}
		highest = id
	}
	time.Sleep(40 * time.Millisecond)
	// Another daemon is behind for good.
	daemon.set(func(d *fakeDaemon) { d.lastID -= fakeStep / 2 })
	_, err := client.Next(background)
	var wentBack *WentBackError
	if !errors.As(err, &wentBack) || wentBack.Found >= wentBack.Highest || wentBack.Highest < highest {
		t.Fatalf("%v", err)
	}
	if id := draw(t, client); id >= highest {
		t.Errorf("%d is none of the lower IDs", id)
	}
}

func TestSourcesHaveBuffersOfTheirOwn(t *testing.T) {
	daemon := startFake(t, "127.0.0.1:0")
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	if client.Source("default") != client.Source("default") {
		t.Error("a source has two buffers")
	}
	_, err := client.Source("orders").Next(background)
	var unknown *NoSourceError
	if !errors.As(err, &unknown) || !errors.Is(err, ErrUnknownSource) || unknown.Known[0] != "default" {
		t.Fatalf("%v", err)
	}
}
