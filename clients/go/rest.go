package snowbank

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// endpoint is one of a lane, and how it has been. The lane's lock guards it.
type endpoint struct {
	place
	// failures counts those since the last answered call. The back-off grows with them.
	failures int
	// restsUntil is when it may be asked again, and servesAt when it can serve, as it says.
	restsUntil, servesAt time.Time
	// reason is why it was left, or why a call waits.
	reason error
}

// lane is a list of endpoints with one connection at a time. A client has one, and one for each
// endpoint if it takes turns.
type lane struct {
	core *core

	mu        sync.Mutex
	endpoints []*endpoint
	// current is the index of the endpoint that is connected, or that is next.
	current    int
	connection *connection
	dialing    *dialing
}

// dialing is a dial in flight, which all calls without a connection wait for.
type dialing struct {
	done chan struct{}
	// made is the connection, or nil, and refused the daemon's answer in place of WELCOME.
	made    *connection
	refused *RefusedError
}

// connected returns the lane's connection, or the dial to wait for, or how long all endpoints rest.
func (l *lane) connected() (*connection, *dialing, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection != nil || l.dialing != nil {
		return l.connection, l.dialing, 0
	}
	next, rest, now := 0, time.Duration(0), time.Now()
	for i := range l.endpoints {
		at := (l.current + i) % len(l.endpoints)
		if left := l.endpoints[at].restsUntil.Sub(now); i == 0 || left < rest {
			next, rest = at, left
		}
		if rest <= 0 {
			break
		}
	}
	if rest > 0 {
		return nil, nil, rest
	}
	l.current, l.dialing = next, &dialing{done: make(chan struct{})}
	go l.dial(l.dialing, l.endpoints[next])
	return nil, l.dialing, 0
}

func (l *lane) dial(d *dialing, e *endpoint) {
	conn, err := l.core.dial(l.core.ctx, &e.place)
	d.made = conn
	d.refused, _ = err.(*RefusedError)
	l.mu.Lock()
	l.dialing = nil
	if err == nil {
		l.connection = conn
		conn.start(l, e)
	} else {
		l.rest(e, err)
	}
	l.mu.Unlock()
	if err == nil {
		l.core.event(Event{Kind: Connected, Endpoint: conn.label})
		if len(l.core.places) > 1 {
			l.core.watching.Do(func() { go l.core.rounds() })
		}
	} else {
		l.core.failed(e.text, err)
	}
	close(d.done)
}

// rest leaves an endpoint alone: for a random time up to its back-off, or for the time that its
// daemon asked for and up to as much again. The lock must be held.
func (l *lane) rest(e *endpoint, reason error) {
	limit := min(l.core.times.backoffMin<<min(e.failures, 16), l.core.times.backoffMax)
	e.note(reason)
	asked := min(time.Until(e.servesAt), retryAfterCap)
	rest := max(time.Duration(random(int64(limit))), asked+time.Duration(random(int64(asked))))
	e.restsUntil = time.Now().Add(rest)
	if e.failures++; e.failures == 1 && len(l.core.places) == 1 {
		// It may be a balancer's name, with another daemon behind it.
		e.restsUntil = time.Time{}
	}
	if l.endpoints[l.current] == e {
		l.current = (l.current + 1) % len(l.endpoints)
	}
}

// leave gives up a connection. It returns true if its endpoint has failed: the connection was lost
// in use, or the daemon says so.
func (l *lane) leave(conn *connection, reason error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connection != conn {
		return false
	}
	l.connection = nil
	if reason == errLeft || reason == ErrClosed {
		return false
	}
	l.rest(conn.endpoint, reason)
	return true
}

// note keeps what an endpoint said to a call: nil is an answer.
func (l *lane) note(e *endpoint, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.note(reason); reason == nil {
		e.failures = 0
	}
}

func (e *endpoint) note(reason error) {
	e.reason, e.servesAt = reason, time.Time{}
	if refused := (*RefusedError)(nil); errors.As(reason, &refused) {
		e.servesAt = time.Now().Add(refused.RetryAfter)
	}
}

// backTo moves the lane to an earlier endpoint of the caller's order.
func (l *lane) backTo(index int) {
	l.mu.Lock()
	conn := l.connection
	if index >= l.current || conn == nil {
		l.mu.Unlock()
		return
	}
	l.connection, l.current = nil, index
	l.endpoints[index].restsUntil = time.Time{}
	l.mu.Unlock()
	conn.finish()
}

// soonest returns the refusal with the shortest wait, if no endpoint may serve before that time.
func (c *core) soonest(before time.Time) *RefusedError {
	var first *endpoint
	for _, l := range c.lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range l.endpoints {
			if !e.servesAt.After(before) {
				return nil
			}
			if first == nil || e.servesAt.Before(first.servesAt) {
				first = e
			}
		}
	}
	refused := (*RefusedError)(nil)
	errors.As(first.reason, &refused)
	return refused
}

// reasons returns the last reason of each endpoint.
func (c *core) reasons() (reasons []error) {
	for _, l := range c.lanes {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, e := range l.endpoints {
			switch {
			case e.reason != nil:
				reasons = append(reasons, e.reason)
			case i == l.current && (l.connection != nil || l.dialing != nil):
				reasons = append(reasons, fmt.Errorf("%s has not answered yet", e.text))
			default:
				reasons = append(reasons, fmt.Errorf("%s was not asked", e.text))
			}
		}
	}
	return reasons
}

// random returns a number from 0 to below limit, and 0 if that is none. It differs from process to
// process, as math/rand's of Go 1.19 does not.
func random(limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(new(maphash.Hash).Sum64() >> 1 % uint64(limit))
}
