package snowbank

import (
	"sync"
	"time"
)

// goAlarmStep bounds how long a goAlarm trusts Go's timers, which stand still while the machine
// sleeps.
const goAlarmStep = 50 * time.Millisecond

// goAlarm is an alarm for systems without timers that go on in sleep: it looks at the clock in
// small steps.
type goAlarm struct {
	clock clock
	ring  func()
	mu    sync.Mutex
	at    time.Duration
	timer *time.Timer
	// isStopped is true from stop on.
	isStopped bool
}

func (a *goAlarm) set(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isStopped {
		return
	}
	a.at = at
	if a.timer != nil {
		a.timer.Stop()
	}
	a.timer = time.AfterFunc(a.step(), a.look)
}

// step returns the time until the next look. The lock must be held.
func (a *goAlarm) step() time.Duration {
	left := a.at - a.clock.now()
	if left > goAlarmStep {
		return goAlarmStep
	}
	return left
}

func (a *goAlarm) look() {
	a.mu.Lock()
	isDue := a.at <= a.clock.now() && !a.isStopped
	if !isDue && !a.isStopped {
		a.timer.Reset(a.step())
	}
	a.mu.Unlock()
	if isDue {
		a.ring()
	}
}

func (a *goAlarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isStopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
