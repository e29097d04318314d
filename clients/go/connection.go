package snowbank

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// inFlightMax is the most requests that are sent ahead of their replies. A daemon reads some
	// 500 in a turn.
	inFlightMax = 1_024
	// greetingTag is the tag of the greeting, and of frames that answer no request. Calls count
	// from 1.
	greetingTag = 0
)

// request is what a caller asks for.
type request struct {
	kind byte
	next nextRequest
	// source is the name of the source. Its index on the daemon replaces next.source. "" takes
	// next.source.
	source string
}

// call is one try of a request.
type call struct {
	request
	// movesOnBy is the call's deadline if another endpoint is left to ask, and else zero. The
	// client leaves a daemon whose next IDs come only after it.
	movesOnBy time.Time
	// answer has room for the one answer, so that nobody waits for a caller that abandoned
	// its call.
	answer      chan answer
	isAbandoned atomic.Bool
}

// answer is what a call gets.
type answer struct {
	ids      []int64
	info     *Info
	endpoint string
	// freshAt is when the reply came, less the time that the machine slept since the request.
	freshAt time.Duration
	err     error
}

// flight is a request that was sent and has no full reply yet.
type flight struct {
	call   *call
	tag    uint16
	ids    idCollector
	json   []byte
	sentAt time.Time
	// sentAtBoot is sentAt by the machine's clock, which counts its sleep.
	sentAtBoot time.Duration
	// readBy is the time from which the request's wait counts at the latest. The daemon may read a
	// request only when it has answered the earlier ones.
	readBy time.Time
	// progressAt is the time of the reply's latest frame that came while the caller still waited.
	progressAt time.Time
	// wait is how long the daemon may hold the request.
	wait    time.Duration
	isBegun bool
}

// stallsAt returns the time at which the daemon counts as stalled.
func (f *flight) stallsAt(limit time.Duration) time.Time {
	at := f.readBy.Add(f.wait)
	if f.progressAt.After(at) {
		at = f.progressAt
	}
	return at.Add(limit)
}

// connection is a connection after its greeting. Replies come in the order of the requests, so the
// calls in flight form a queue. A call that its caller has abandoned stays in that queue: its reply
// is read and dropped. A frame that is not the reply due next ends the connection, because later
// frames could belong to any call.
//
// A goroutine reads and another one writes, until the connection ends.
type connection struct {
	pool   *pool
	target *target
	socket net.Conn
	input  input
	// slots bounds the calls in flight.
	slots chan struct{}
	// wake tells the writer that there is output.
	wake chan struct{}
	// done is closed when the connection has ended and the pool knows it.
	done chan struct{}

	// mu may be held when the pool's lock is taken, and not the other way round.
	mu       sync.Mutex
	inFlight []*flight
	output   []byte
	lastTag  uint16
	info     *Info
	// isRetired is true once it takes no further calls.
	isRetired   bool
	isEnded     bool
	hasAnswered bool
}

// errSendAgain is returned by send if the connection takes no calls any more. The pool knows that
// by then.
var errSendAgain = errors.New("the connection takes no calls any more")

// send puts a call in flight.
func (c *connection) send(ctx context.Context, call *call) error {
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return errSendAgain
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	isEnded, isRetired := c.isEnded, c.isRetired
	var err error
	if !isEnded && !isRetired {
		err = c.encode(call)
	}
	c.mu.Unlock()
	if isEnded {
		<-c.done
	}
	if isEnded || isRetired {
		return errSendAgain
	}
	if err != nil {
		<-c.slots
		return err
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// encode adds a call to the output and the calls in flight. The lock must be held.
func (c *connection) encode(call *call) error {
	next := call.next
	if call.source != "" {
		source := c.info.source(call.source)
		if source == nil {
			return &NoSourceError{Endpoint: c.target.label, Name: call.source, Known: c.info.sourceNames()}
		}
		next.source = source.Index
	}
	// Tags count from 1 to 65535 and start again. Far fewer calls are in flight.
	if c.lastTag++; c.lastTag == greetingTag {
		c.lastTag++
	}
	now := time.Now()
	f := &flight{call: call, tag: c.lastTag, ids: idCollector{asked: next}, sentAt: now, readBy: now}
	f.sentAtBoot = c.pool.environment.clock.now()
	if call.kind == kindNext {
		c.output = appendNext(c.output, f.tag, next)
		f.wait = time.Duration(next.waitMS) * time.Millisecond
		if next.waitMS == waitDefault {
			f.wait = c.info.defaultWait(next.source)
		}
	} else {
		c.output = appendBody(c.output, call.kind, f.tag, "")
	}
	c.inFlight = append(c.inFlight, f)
	if len(c.inFlight) == 1 {
		c.armStall()
	}
	return nil
}

// armStall lets the reader wake up when the oldest request counts as stalled. The lock must be
// held.
func (c *connection) armStall() {
	var at time.Time
	if len(c.inFlight) > 0 {
		at = c.inFlight[0].stallsAt(c.pool.options.AnswerTimeout)
	}
	c.socket.SetReadDeadline(at)
}

// write sends the output. After a failure the reader goes on: the daemon's last words count more.
func (c *connection) write() {
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		output := c.output
		c.output = spare[:0]
		c.mu.Unlock()
		if _, err := c.socket.Write(output); err != nil {
			return
		}
		spare = output
	}
}

// ending is why a connection ends.
type ending struct {
	err error
	// isAnswer is true if it answers the oldest call. The other calls in flight are lost.
	isAnswer bool
}

// read takes replies until the connection ends.
func (c *connection) read() {
	for {
		if why := c.takeFrames(); why != nil {
			c.end(*why)
			return
		}
		size, err := c.socket.Read(c.input.space())
		c.input.end += size
		if size > 0 {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.checkStall()
		} else {
			err = c.lost(describe(err), err)
		}
		if err != nil {
			c.end(ending{err: err})
			return
		}
	}
}

// checkStall returns an error if the oldest request has stalled. The read's deadline can be early.
func (c *connection) checkStall() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inFlight) > 0 {
		front, limit := c.inFlight[0], c.pool.options.AnswerTimeout
		if !front.stallsAt(limit).After(time.Now()) {
			return c.lost(fmt.Sprintf("it did not answer within %s", front.wait+limit), nil)
		}
	}
	c.armStall()
	return nil
}

// takeFrames hands every whole frame to the call that it answers. It returns why the connection
// must end, if it must.
func (c *connection) takeFrames() *ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		f, isWhole, problem := c.input.next()
		if problem != "" {
			return c.breach(problem)
		}
		if !isWhole {
			return nil
		}
		if why := c.take(&f); why != nil {
			return why
		}
	}
}

// take hands one frame to the oldest call. The lock must be held.
func (c *connection) take(f *frame) *ending {
	if f.kind == kindError && f.tag == greetingTag {
		return &ending{err: f.refusal(c.target.label)}
	}
	if len(c.inFlight) == 0 {
		return c.breach("a frame that answers no request")
	}
	front := c.inFlight[0]
	if f.tag != front.tag {
		return c.breach(fmt.Sprintf("a reply with tag %d where %d is due", f.tag, front.tag))
	}
	if f.kind == kindError {
		if front.isBegun {
			return c.breach(wrongKind)
		}
		return c.refuseFront(f.refusal(c.target.label))
	}
	front.isBegun = true
	if !front.call.isAbandoned.Load() {
		front.progressAt = time.Now()
	}
	answer, isDone, problem := front.add(f)
	if problem != "" {
		return c.breach(problem)
	}
	if !isDone {
		return nil
	}
	if answer.info != nil {
		c.info = answer.info
	}
	c.hasAnswered = true
	c.popFront()
	answer.endpoint, answer.freshAt = c.target.label, front.sentAtBoot+time.Since(front.sentAt)
	front.call.answer <- answer
	return nil
}

// add takes a frame of the reply, and returns the answer once it is complete.
func (f *flight) add(reply *frame) (answer answer, isDone bool, problem string) {
	if f.call.kind == kindNext {
		isDone, problem = f.ids.add(reply)
		answer.ids = f.ids.ids
		return answer, isDone, problem
	}
	f.json, isDone, problem = addInfo(f.json, reply)
	if isDone {
		answer.info, problem = parseInfo(f.json)
	}
	return answer, isDone, problem
}

// addInfo joins the frames of an INFO reply.
func addInfo(json []byte, f *frame) (joined []byte, isDone bool, problem string) {
	if f.kind != kindJSON {
		return nil, false, wrongKind
	}
	if len(json)+len(f.body) > infoBytesMax {
		return nil, false, fmt.Sprintf("the INFO reply exceeds %d bytes", infoBytesMax)
	}
	return append(json, f.body...), !f.more(), ""
}

// popFront takes the oldest call out of flight. The daemon may read the next one now. The lock must
// be held.
func (c *connection) popFront() {
	c.inFlight[0] = nil
	c.inFlight = c.inFlight[1:]
	if len(c.inFlight) > 0 {
		c.inFlight[0].readBy = time.Now()
	} else if c.isRetired {
		// The end of the reading ends the connection.
		c.socket.Close()
	}
	c.armStall()
	<-c.slots
}

// refuseFront answers the oldest call with the daemon's refusal, which may also end the connection.
// The pool knows that before the caller does, so that its next try goes elsewhere. The lock must be
// held.
func (c *connection) refuseFront(refused *RefusedError) *ending {
	// A single daemon whose clock or ceiling fails keeps its connection: there is no better one.
	if refused.Code.closes() || refused.Code.isStateOfDaemon() && c.pool.hasOthers() {
		return &ending{err: refused, isAnswer: true}
	}
	front := c.inFlight[0]
	if movesOnBy := front.call.movesOnBy; !movesOnBy.IsZero() && isExhaustedBeyond(refused, movesOnBy) {
		c.isRetired = true
		c.pool.preferOthers(c, refused)
	}
	c.popFront()
	front.call.answer <- answer{err: refused}
	return nil
}

// breach returns the end of a connection whose frames break the protocol.
func (c *connection) breach(what string) *ending {
	err := &EndpointError{Endpoint: c.target.label, Kind: ErrProtocol, Reason: oneLine(what)}
	return &ending{err: err, isAnswer: true}
}

// end closes the connection. The calls in flight fail, and try again elsewhere.
func (c *connection) end(why ending) {
	c.mu.Lock()
	if c.isEnded {
		c.mu.Unlock()
		return
	}
	c.isEnded = true
	left := c.inFlight
	c.inFlight = nil
	c.pool.ended(c, why.err)
	c.mu.Unlock()
	c.socket.Close()
	close(c.done)
	var lost error = c.lost(why.err.Error(), nil)
	if why.err == ErrClosed || errors.Is(why.err, ErrLost) {
		lost = why.err
	}
	for i, f := range left {
		if i == 0 && why.isAnswer {
			f.call.answer <- answer{err: why.err}
			continue
		}
		f.call.answer <- answer{err: lost}
	}
}

// retire lets the connection answer its calls in flight, and take no others.
func (c *connection) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRetired = true
	if len(c.inFlight) == 0 {
		c.socket.Close()
	}
}

func (c *connection) lost(reason string, cause error) *EndpointError {
	return &EndpointError{Endpoint: c.target.label, Kind: ErrLost, Reason: reason, cause: cause}
}

// describe returns the reason of an error of the network in words, without the addresses that the
// caller names.
func describe(err error) string {
	var errno syscall.Errno
	var name *net.DNSError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, io.EOF):
		return "closed by the daemon"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &name):
		return "the name cannot be looked up: " + name.Err
	case errors.As(err, &record):
		return "it does not speak TLS: write the address without tls:, if it may be read on its way"
	default:
		return oneLine(strings.TrimPrefix(err.Error(), "remote error: "))
	}
}
