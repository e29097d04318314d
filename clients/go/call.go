package snowbank

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// inFlightMax is the most requests that are sent ahead of their replies. A Unix socket of Linux
	// takes 277 from which its daemon reads none. So no call waits for a socket that is full.
	inFlightMax = 256
	// askedWait is the wait that a NEXT request carries, and fetchWait that of a fetch. Then the
	// daemon sends a part.
	askedWait = time.Second
	fetchWait = 50 * time.Millisecond
	// retryAfterCap is the most that counts of a refusal's time: a daemon may be back earlier.
	retryAfterCap = time.Second
	// stayMin keeps a daemon that says "stay" without a time from being asked in a loop.
	stayMin = time.Millisecond
	// lastLook is how long a reply that may have come already is looked for before the connection
	// has failed.
	lastLook = 10 * time.Millisecond
)

// call is a request with one deadline over all of its tries.
type call struct {
	request
	// ctx ends with the deadline.
	ctx      context.Context
	deadline time.Time
	allowed  time.Duration
	tries    int
}

// call begins a call whose deadline is the context's or Options.Timeout, whichever is earlier.
func (c *core) call(parent context.Context, r request) (*call, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, c.options.Timeout)
	deadline, _ := ctx.Deadline()
	return &call{request: r, ctx: ctx, deadline: deadline, allowed: time.Until(deadline)}, cancel
}

// ended returns why a call can get nothing any more: the client is closed, it has found a
// collision, or the call is cancelled or late.
func (c *core) ended(k *call) error {
	if err := c.problem(); err != nil {
		return err
	}
	switch err := k.ctx.Err(); err {
	case context.DeadlineExceeded:
		return &DeadlineError{Allowed: k.allowed, Reasons: c.reasons()}
	default:
		return err
	}
}

// pause waits, until the context or the client ends.
func (c *core) pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	case <-ctx.Done():
	}
}

// reply is what a request got, or why it got none.
type reply struct {
	collector
	goodFor time.Duration
	// due is when the daemon could read the request: when it was sent, or the reply before it had
	// ended. The IDs are younger.
	due moment
	err error
}

// do asks until the call is answered, fails, or ends at its deadline.
func (c *core) do(k *call) (*reply, error) {
	for {
		if err := c.ended(k); err != nil {
			return nil, err
		}
		got, wait, err := c.try(k)
		if got != nil || err != nil {
			return got, err
		}
		c.pause(k.ctx, wait)
	}
}

// try asks once. It returns the reply or the call's error, or neither and how long to wait before
// the next try.
func (c *core) try(k *call) (got *reply, wait time.Duration, err error) {
	conn, rest := c.pick()
	if conn == nil {
		return nil, rest, nil
	}
	select {
	case <-conn.greeted:
		// The client may be closed meanwhile, and the call be late.
		if err = c.ended(k); err != nil {
			return nil, 0, err
		}
	case <-conn.done:
		refused, isRefusal := conn.reason.(*RefusedError)
		switch {
		case isRefusal && refused.isRetried():
			err = c.soonest(k.deadline)
		case isRefusal:
			err = refused
		}
		return nil, 0, err
	case <-k.ctx.Done():
		return nil, 0, nil
	}
	if k.tries++; k.tries > 1 {
		c.counts.retries.Add(1)
	}
	got = conn.ask(k)
	switch refused, isRefusal := got.err.(*RefusedError); {
	case got.err == nil:
		c.mu.Lock()
		conn.endpoint.note(nil)
		c.mu.Unlock()
		c.counts.calls.Add(1)
		return got, 0, c.problem()
	case isRefusal:
		wait, err = c.obey(k, conn, refused)
	}
	return nil, wait, err
}

// obey does what a refusal says.
func (c *core) obey(k *call, conn *connection, refused *RefusedError) (wait time.Duration, err error) {
	c.failed(conn.label, refused)
	if !refused.isRetried() {
		return 0, refused
	}
	isLate := refused.RetryAfter > time.Until(k.deadline)
	wait = max(spread(refused.RetryAfter), stayMin)
	c.mu.Lock()
	conn.endpoint.note(refused)
	if c.options.TakeTurns && refused.Action == Stay {
		// Others have their turn meanwhile.
		conn.endpoint.restsUntil, wait = time.Now().Add(wait), 0
	}
	c.mu.Unlock()
	err = c.soonest(k.deadline)
	if refused.Action == Leave || isLate && err == nil {
		if c.leave(conn, refused) {
			conn.finish()
		}
		return 0, err
	}
	return wait, err
}

// sent is a request in the row of expected replies.
type sent struct {
	tag uint16
	// wait is the daemon's time before the first frame of the reply.
	wait time.Duration
	// got is the reply so far. Done has room for it, so that nobody waits for a call that has gone.
	got    *reply
	done   chan *reply
	isGone atomic.Bool
}

// connection is a connection to a daemon. Replies come in the order of the requests. A call that is
// cancelled or late keeps its place in the row: its reply is read and dropped.
//
// A goroutine reads until the connection ends. Calls write.
type connection struct {
	core     *core
	endpoint *endpoint
	label    string
	socket   net.Conn
	reader   *bufio.Reader
	welcome
	// slots bounds the row.
	slots chan struct{}
	// greeted is closed when calls may use it, which the core knows as isGreeted.
	greeted   chan struct{}
	isGreeted bool
	// done is closed when the connection has ended and the core knows it, for this reason.
	ending sync.Once
	done   chan struct{}
	reason error

	mu      sync.Mutex
	row     []*sent
	output  []byte
	lastTag uint16
	isEnded bool
	// isBegun is true once a byte of the next frame has come.
	isBegun bool
	// hasLooked is true after the last look for what has come.
	hasLooked bool
	// isLeft is true once the connection is not needed but for the replies in the row.
	isLeft bool
	// isDeaf is true once a write has failed. The reader goes on: the daemon's last words count more.
	isDeaf bool
}

// errLeft is the end of a connection that no call needs, which is no failure.
var errLeft = errors.New("the client has left the connection")

func newConnection(c *core, e *endpoint) *connection {
	return &connection{core: c, endpoint: e, label: e.text, slots: make(chan struct{}, inFlightMax),
		greeted: make(chan struct{}), done: make(chan struct{})}
}

// start reads what answers HELLO and later requests, until the connection or the client ends.
func (c *connection) start() {
	c.reader = bufio.NewReader(c)
	go c.read()
	go func() {
		select {
		case <-c.core.ctx.Done():
			c.end(ErrClosed)
		case <-c.done:
		}
	}()
}

// ask sends a request and waits for its reply, but not longer than its call.
func (c *connection) ask(k *call) *reply {
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return &reply{err: errLeft}
	case <-k.ctx.Done():
		return &reply{err: k.ctx.Err()}
	}
	s := c.enter(k)
	if s == nil {
		return &reply{err: errLeft}
	}
	select {
	case got := <-s.done:
		return got
	case <-k.ctx.Done():
		s.isGone.Store(true)
		return &reply{err: k.ctx.Err()}
	}
}

// enter puts a request into the row and sends it. It returns nil if the connection has ended.
func (c *connection) enter(k *call) *sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isEnded {
		return nil
	}
	// Tags count from 1 to 65535 and start again. Far fewer requests are in the row.
	if c.lastTag++; c.lastTag == 0 {
		c.lastTag++
	}
	s := &sent{tag: c.lastTag, done: make(chan *reply, 1), got: &reply{
		collector: collector{asked: k.request}, goodFor: c.goodFor, due: c.core.times.now()}}
	if k.kind == kindHello {
		s.wait = c.core.times.connect
	}
	if k.kind == kindNext {
		s.wait = max(0, min(askedWait, time.Until(k.deadline)))
	}
	if k.isFetch {
		s.wait = min(s.wait, fetchWait)
		s.got.asked.count = uint32(min(uint64(k.count), uint64(c.maxCount)))
	}
	if c.row = append(c.row, s); len(c.row) == 1 {
		c.armStall()
	}
	if !c.isDeaf {
		c.output = appendRequest(c.output[:0], s.tag, s.got.asked, s.wait)
		// The row is short, so a socket takes it whole.
		c.socket.SetWriteDeadline(time.Now().Add(c.core.times.answer))
		_, err := c.socket.Write(c.output)
		c.isDeaf = err != nil
	}
	if k.kind == kindHello {
		c.start()
	}
	return s
}

// read takes replies until the connection ends.
func (c *connection) read() {
	for {
		f, err := readFrame(c.reader)
		if err == nil {
			err = c.take(&f)
		}
		if err != nil {
			c.end(c.lost(err))
			return
		}
		// The event of the greeting comes before that of a failure.
		select {
		case <-c.greeted:
		case <-c.done:
		}
	}
}

// lost returns why the connection ends. A daemon that closes it while no call uses it, after the
// first, has not failed.
func (c *connection) lost(err error) error {
	_, isRefusal := err.(*RefusedError)
	reason := failure(c.label, ErrLost, "it did not answer", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isGreeting() && isRefusal:
		return err
	case c.isGreeting():
		return failure(c.label, ErrUnreachable, noWelcome, err)
	case len(c.row) == 0 && c.lastTag != helloTag && !isRefusal && errors.Is(reason, ErrLost):
		return errLeft
	}
	return reason
}

// isGreeting returns true while HELLO has no reply. The lock must be held.
func (c *connection) isGreeting() bool { return len(c.row) > 0 && c.row[0].got.asked.kind == kindHello }

// Read reads from the socket.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.socket.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.hasLooked {
		// A program that was stopped has not read yet what came meanwhile.
		c.hasLooked = true
		c.socket.SetReadDeadline(time.Now().Add(lastLook))
		n, err = c.socket.Read(p)
	}
	if n > 0 && len(c.row) > 0 && !c.isBegun {
		c.isBegun = true
		c.armStall()
	}
	return n, err
}

// armStall sets the time when the daemon counts as stalled: an answer's limit from now on until a
// frame that has begun is whole, or until one begins, after the wait. The lock must be held.
func (c *connection) armStall() {
	var at time.Time
	if len(c.row) > 0 {
		if at = time.Now().Add(c.core.times.answer); !c.isBegun {
			at = at.Add(c.row[0].wait)
		}
	}
	c.hasLooked = false
	c.socket.SetReadDeadline(at)
}

// take gives a frame to the oldest request.
func (c *connection) take(f *frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.kind == kindError && (f.tag == 0 || c.isGreeting()) {
		return f.refusal(c.label)
	}
	if len(c.row) == 0 {
		return breachf("a frame that answers no request")
	}
	front := c.row[0]
	if f.tag != front.tag {
		return breachf("a reply with tag %d where %d is due", f.tag, front.tag)
	}
	got, now := front.got, c.core.times.now()
	c.isBegun, front.wait = c.reader.Buffered() > 0, 0
	if f.kind == kindError && got.kind == 0 {
		got.err = f.refusal(c.label)
	} else if isDone, err := got.add(f); err != nil || !isDone {
		c.armStall()
		return err
	} else if age := now.since(got.due); got.asked.isFetch && age >= got.goodFor {
		return fmt.Errorf("it answered after %s, and its IDs are good for %s", age.Round(time.Millisecond), got.goodFor)
	}
	if front.isGone.Load() {
		c.core.counts.dropped.Add(uint64(len(got.ids)))
	}
	c.row[0] = nil
	if c.row = c.row[1:]; len(c.row) > 0 {
		// The daemon may read the next one now.
		c.row[0].got.due = now
	}
	c.armStall()
	<-c.slots
	front.done <- got
	if c.isLeft && len(c.row) == 0 {
		return errLeft
	}
	return nil
}

// finish ends the connection once the requests in the row are answered.
func (c *connection) finish() {
	c.mu.Lock()
	c.isLeft = true
	isIdle := len(c.row) == 0
	c.mu.Unlock()
	if isIdle {
		c.end(errLeft)
	}
}

// end closes the connection, or gives its dial up. The requests in the row fail, and their calls
// try again.
func (c *connection) end(reason error) {
	c.ending.Do(func() {
		if c.core.ctx.Err() != nil {
			reason = ErrClosed
		}
		c.reason = reason
		if c.socket != nil {
			// First, because a call that writes holds the lock.
			c.socket.Close()
		}
		// A call that finds the connection ended takes another one.
		hasFailed := c.core.leave(c, reason)
		c.mu.Lock()
		row := c.row
		c.isEnded, c.row = true, nil
		c.mu.Unlock()
		if hasFailed {
			c.core.failed(c.label, reason)
		}
		close(c.done)
		for _, s := range row {
			s.done <- &reply{err: reason}
		}
	})
}
