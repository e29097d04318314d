//go:build !linux

package snowbank

import "time"

// bootClock is the wall clock, which goes on while the machine sleeps, where Go has no clock that
// is better.
type bootClock struct{}

func (bootClock) now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (c bootClock) newAlarm(ring func()) alarm { return &goAlarm{clock: c, ring: ring} }
