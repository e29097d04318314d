package snowbank

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeClocks are the machine's clocks. Each may be moved.
type fakeClocks struct{ wall, monotonic atomic.Int64 }

func (c *fakeClocks) now() moment {
	real := now()
	return moment{real.wall + c.wall.Load(), real.monotonic + c.monotonic.Load()}
}

// sleep lets the machine sleep: the monotonic clock stands still.
func (c *fakeClocks) sleep(time time.Duration) { c.wall.Add(int64(time)) }

func timesOf(clocks *fakeClocks) *times {
	long := longTimes()
	long.now = clocks.now
	return long
}

func draw(t testing.TB, client *Client) int64 {
	t.Helper()
	id, err := client.Next(background)
	must(t, err)
	return id
}

func TestIDsTooOldByEitherClockAreDropped(t *testing.T) {
	for name, move := range map[string]func(*fakeClocks){
		"the machine slept":       func(c *fakeClocks) { c.sleep(2 * time.Minute) },
		"the program stood still": func(c *fakeClocks) { c.sleep(2 * time.Minute); c.monotonic.Add(int64(2 * time.Minute)) },
		"the wall clock went back": func(c *fakeClocks) {
			c.sleep(-time.Hour)
			c.monotonic.Add(int64(2 * time.Minute))
		},
	} {
		daemon := startFake(t)
		clocks := &fakeClocks{}
		client := newClient(t, Options{Endpoints: []string{daemon.address}, times: timesOf(clocks)})
		first := draw(t, client)
		if second := draw(t, client); second != first+1 {
			t.Errorf("%s: %d follows %d", name, second, first)
		}
		move(clocks)
		if third := draw(t, client); third < first+fetchMin {
			t.Errorf("%s: %d was handed out", name, third)
		}
		if stats := client.Stats(); stats.Dropped != fetchMin-2 || stats.IDs != 3 {
			t.Errorf("%s: %+v", name, stats)
		}
	}
}

func TestReplyThatASleepDelayedIsDropped(t *testing.T) {
	daemon := startFake(t)
	clocks := &fakeClocks{}
	client := newClient(t, Options{Endpoints: []string{daemon.address}, times: timesOf(clocks)})
	must(t, client.Ping(background))
	daemon.onNext = func(tag uint16) []byte {
		daemon.onNext = nil
		clocks.sleep(time.Hour)
		return appendRun(tag, 1, fetchMin)
	}
	if id := draw(t, client); id <= fetchMin {
		t.Errorf("%d was made before the machine's sleep", id)
	}
	if stats := client.Stats(); stats.Failures != 1 || stats.Dropped != 0 {
		t.Errorf("the late answer is no failure: %+v", stats)
	}
}

func TestClockIsReadRarelyWhileIDsGoFast(t *testing.T) {
	daemon := startFake(t)
	looks := atomic.Int64{}
	counted := longTimes()
	counted.now = func() moment {
		looks.Add(1)
		return now()
	}
	client := newClient(t, Options{Endpoints: []string{daemon.address}, times: counted})
	for i := 0; i < 20_000; i++ {
		draw(t, client)
	}
	if looks.Load() > 5_000 {
		t.Errorf("%d looks for 20000 IDs", looks.Load())
	}
	before := looks.Load()
	for i := 0; i < 2*lookEvery; i++ {
		time.Sleep(coverTime / 4)
		draw(t, client)
	}
	if looks.Load()-before < lookEvery {
		t.Errorf("%d looks for %d IDs that took their time", looks.Load()-before, 2*lookEvery)
	}
}

// TestEachIDIsTakenOnce takes a large stock apart by several goroutines, with no network that would
// slow them down.
func TestEachIDIsTakenOnce(t *testing.T) {
	const count = 1_000_000
	client := newClient(t, Options{Endpoints: []string{"127.0.0.1:1"}})
	buffer := &client.core.buffer
	s := &stock{ids: make([]int64, count), low: -1, goodFor: time.Hour, due: now()}
	for i := range s.ids {
		s.ids[i] = int64(i)
	}
	buffer.current.Store(s)
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
	daemon := startFake(t)
	daemon.maxCount = 3_000
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	last := int64(0)
	for i := 0; i < 100_000; i++ {
		id := draw(t, client)
		if id <= last {
			t.Fatalf("%d follows %d", id, last)
		}
		last = id
	}
	counts := daemon.nextCounts()
	if counts[0] != 16 || counts[1] != 32 || counts[2] != 64 || counts[len(counts)-1] != 3_000 {
		t.Errorf("%v", counts)
	}
	for _, wait := range daemon.waits {
		if wait != 50 {
			t.Errorf("a wait of %d ms", wait)
		}
	}
}

func TestABurstAfterAQuietTimeGrowsAgain(t *testing.T) {
	daemon := startFake(t)
	clocks := &fakeClocks{}
	client := newClient(t, Options{Endpoints: []string{daemon.address}, times: timesOf(clocks)})
	for i := 0; i < 20; i++ {
		draw(t, client)
		clocks.sleep(2 * time.Minute)
	}
	quiet := daemon.nextCounts()
	for i := 0; i < 10_000; i++ {
		draw(t, client)
	}
	all := daemon.nextCounts()
	if quiet[len(quiet)-1] != 16 || len(all)-len(quiet) > 20 {
		t.Errorf("%d fetches for a burst: %v", len(all)-len(quiet), all)
	}
}

func TestManyCallsWaitForOneFetch(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	hold := make(chan struct{})
	daemon.onNext = func(tag uint16) []byte {
		<-hold
		daemon.onNext = nil
		daemon.lastID += fetchMin
		return appendRun(tag, uint64(daemon.lastID-fetchMin)+1, fetchMin)
	}
	var recorded recorder
	var all sync.WaitGroup
	for i := 0; i < 1_000; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			id, err := client.Next(background)
			if err != nil || recorded.add(0, id) != 0 {
				t.Errorf("%d, %v", id, err)
			}
		}()
	}
	eventually(t, "a thousand calls wait", func() bool { return client.core.buffer.waiting.Load() == 1_000 })
	close(hold)
	all.Wait()
	if counts := daemon.nextCounts(); len(counts) > 6 {
		t.Errorf("%v", counts)
	}
}

// TestLateCallsDoNotInheritTheFetchsDeadline: a fetch goes on for a call that joined it, past the
// deadline of the call that began it.
func TestLateCallsDoNotInheritTheFetchsDeadline(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}, Timeout: 2 * time.Second})
	must(t, client.Ping(background))
	daemon.set(func(d *fakeDaemon) { d.isSilent = true })
	first, second := make(chan error, 1), make(chan error, 1)
	draw := func(to chan error) {
		_, err := client.Next(background)
		to <- err
	}
	go draw(first)
	time.Sleep(1200 * time.Millisecond)
	go draw(second)
	if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first call: %v", err)
	}
	if len(second) > 0 {
		t.Errorf("the second call ended with the first: %v", <-second)
	}
	// The connection ends, and the fetch's next try is answered.
	daemon.set(func(d *fakeDaemon) {
		d.isSilent = false
		for socket := range d.open {
			socket.Close()
		}
	})
	if err := <-second; err != nil {
		t.Errorf("the second call: %v", err)
	}
}

func TestBufferIsRefilledAhead(t *testing.T) {
	daemon := startFake(t)
	client := newClient(t, Options{Endpoints: []string{daemon.address}})
	for i := 0; i < fetchMin/2-1; i++ {
		draw(t, client)
	}
	if counts := daemon.nextCounts(); len(counts) != 1 {
		t.Errorf("%v requests for less than half of a batch", counts)
	}
	draw(t, client)
	eventually(t, "the next batch is fetched ahead", func() bool { return len(daemon.nextCounts()) == 2 })
}
