package snowbank

import (
	"sync"
	"time"
)

// fakeClock is the machine's clock, and moves further when a test lets the machine sleep.
type fakeClock struct {
	mu     sync.Mutex
	slept  time.Duration
	alarms []*fakeAlarm
}

type fakeAlarm struct {
	clock *fakeClock
	ring  func()
	inner *goAlarm
}

func newFakeClock() *fakeClock { return &fakeClock{} }

func (c *fakeClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bootClock{}.now() + c.slept
}

// advance lets the machine sleep. Alarms that are due ring before it returns, as on a machine that wakes up.
func (c *fakeClock) advance(time time.Duration) {
	c.mu.Lock()
	c.slept += time
	alarms := append([]*fakeAlarm(nil), c.alarms...)
	c.mu.Unlock()
	for _, a := range alarms {
		a.ring()
	}
}

func (c *fakeClock) newAlarm(ring func()) alarm {
	a := &fakeAlarm{clock: c, ring: ring, inner: &goAlarm{clock: c, ring: ring}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms = append(c.alarms, a)
	return a
}

func (a *fakeAlarm) set(at time.Duration) { a.inner.set(at) }

func (a *fakeAlarm) stop() { a.inner.stop() }
