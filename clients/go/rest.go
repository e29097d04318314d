package snowbank

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"
)

// endpoint is one of a client's, and how it has been. The core's lock guards all but lastIP.
type endpoint struct {
	address
	// lastIP is what the name resolved to for the last try. One dial at a time uses it.
	lastIP string
	// connection is greeted, or its dial is in flight, which all calls wait for.
	connection *connection
	// failures counts those since the last answered call. The back-off grows with them.
	failures int
	// restsUntil is when it may be asked again, and servesAt when it can serve, as it says.
	restsUntil, servesAt time.Time
	// reason is why it was left, or why a call waits.
	reason error
}

// pick returns the connection of the next try, or how long all endpoints rest. A client stays with
// its current endpoint. One that takes turns goes on with each try.
func (c *core) pick() (*connection, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, rest, now := 0, time.Duration(0), time.Now()
	for i := range c.endpoints {
		at := (c.current + i) % len(c.endpoints)
		if left := c.endpoints[at].restsUntil.Sub(now); i == 0 || left < rest {
			next, rest = at, left
		}
		if rest <= 0 {
			break
		}
	}
	if rest > 0 {
		return nil, rest
	}
	if c.current = next; c.options.TakeTurns {
		c.goOn()
	}
	e := c.endpoints[next]
	if e.connection == nil {
		e.connection = newConnection(c, e)
		go c.connect(e.connection)
	}
	return e.connection, 0
}

// goOn makes the next endpoint the current one. The lock must be held.
func (c *core) goOn() { c.current = (c.current + 1) % len(c.endpoints) }

// connect dials for the calls that wait for it.
func (c *core) connect(conn *connection) {
	if conn.dial() != nil {
		return
	}
	c.mu.Lock()
	conn.isGreeted = true
	c.mu.Unlock()
	c.event(Event{Kind: Connected, Endpoint: conn.label})
	if len(c.endpoints) > 1 {
		c.watching.Do(func() { go c.rounds() })
	}
	close(conn.greeted)
}

// rest leaves an endpoint alone: for a random time up to its back-off, or for the time that its
// daemon asked for and up to as much again. The lock must be held.
func (c *core) rest(e *endpoint, reason error) {
	limit := min(c.times.backoffMin<<min(e.failures, 16), c.times.backoffMax)
	e.note(reason)
	rest := max(time.Duration(random(int64(limit))), spread(time.Until(e.servesAt)))
	e.restsUntil = time.Now().Add(rest)
	if e.failures++; e.failures == 1 && len(c.endpoints) == 1 {
		// It may be a balancer's name, with another daemon behind it.
		e.restsUntil = time.Time{}
	}
	if c.endpoints[c.current] == e {
		c.goOn()
	}
}

// leave gives up a connection. It returns true if its endpoint has failed: the connection was not
// made, or lost in use, or the daemon says so.
func (c *core) leave(conn *connection, reason error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := conn.endpoint
	if e.connection != conn {
		return false
	}
	e.connection = nil
	if reason == errLeft || reason == ErrClosed {
		return false
	}
	c.rest(e, reason)
	return true
}

// note keeps what an endpoint said to a call: nil is an answer. The lock must be held.
func (e *endpoint) note(reason error) {
	e.reason, e.servesAt = reason, time.Time{}
	if refused := (*RefusedError)(nil); errors.As(reason, &refused) {
		e.servesAt = time.Now().Add(refused.RetryAfter)
	}
	if reason == nil {
		e.failures = 0
	}
}

// backTo moves the client to an earlier endpoint of the caller's order.
func (c *core) backTo(index int) {
	c.mu.Lock()
	e := c.endpoints[c.current]
	conn := e.connection
	if index >= c.current || conn != nil && !conn.isGreeted {
		c.mu.Unlock()
		return
	}
	e.connection, c.current = nil, index
	c.endpoints[index].restsUntil = time.Time{}
	c.mu.Unlock()
	if conn != nil {
		conn.finish()
	}
}

// soonest returns the refusal with the shortest wait, if no endpoint may serve before that time.
func (c *core) soonest(before time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.endpoints[0]
	for _, e := range c.endpoints {
		if !e.servesAt.After(before) {
			return nil
		}
		if e.servesAt.Before(first.servesAt) {
			first = e
		}
	}
	refused := (*RefusedError)(nil)
	errors.As(first.reason, &refused)
	return refused
}

// reasons returns the last reason of each endpoint.
func (c *core) reasons() (reasons []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		switch {
		case e.reason != nil:
			reasons = append(reasons, e.reason)
		case e.connection != nil:
			reasons = append(reasons, fmt.Errorf("%s has not answered yet", e.text))
		default:
			reasons = append(reasons, fmt.Errorf("%s was not asked", e.text))
		}
	}
	return reasons
}

// spread returns how long to wait if a daemon asks for a time. The random part spreads a herd.
func spread(asked time.Duration) time.Duration {
	asked = min(asked, retryAfterCap)
	return asked + time.Duration(random(int64(asked)))
}

// random returns a number from 0 to below limit, and 0 if that is none. It differs from process to
// process, as math/rand's of Go 1.19 does not.
func random(limit int64) int64 {
	if limit <= 0 {
		return 0
	}
	return int64(new(maphash.Hash).Sum64() >> 1 % uint64(limit))
}
