package snowbank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Client is a handle to one daemon, or to several. It is safe for use by many goroutines, which
// share its connections. The first call connects.
type Client struct {
	options Options
	pool    *pool
	// main takes from the default source.
	main *Source

	mu      sync.Mutex
	sources map[string]*Source
}

// New makes a client. It returns an OptionError if an option is not allowed, and does not connect.
func New(options Options) (*Client, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	endpoints, err := options.addresses()
	if err != nil {
		return nil, err
	}
	readToken := options.takeToken()
	c := &Client{options: options, pool: newPool(options, endpoints), sources: map[string]*Source{}}
	c.pool.readToken = readToken
	c.main = newSource(c, "")
	c.pool.onCollision = c.dropBuffers
	return c, nil
}

// Next returns one ID of the default source: at once from a buffer, which is refilled ahead, or
// with the next reply if the buffer is empty. IDs increase while they come from one daemon. No ID
// is older than Options.MaxAge.
func (c *Client) Next(ctx context.Context) (int64, error) { return c.main.Next(ctx) }

// Batch fetches count IDs of the default source in one round trip. They increase, and nobody else
// has them.
func (c *Client) Batch(ctx context.Context, count int, options ...BatchOption) ([]int64, error) {
	return c.main.Batch(ctx, count, options...)
}

// Source returns the source of that name, and the default source for "". Its index is looked up on
// each daemon. A name that a daemon does not have is noticed by the first call, which returns a
// NoSourceError.
func (c *Client) Source(name string) *Source {
	if name == "" {
		return c.main
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources[name] == nil {
		c.sources[name] = newSource(c, name)
	}
	return c.sources[name]
}

// Info asks the daemon for its version, limits and sources.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	answer, err := c.do(ctx, request{kind: kindInfo})
	return answer.info, err
}

// EndpointErrors returns the error of each address that failed when it was last tried. A wrong port
// shows here while another endpoint serves.
func (c *Client) EndpointErrors() []error {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return c.pool.failures()
}

// Close ends the client. IDs left in buffers are skipped. Calls in flight and later ones return
// ErrClosed.
func (c *Client) Close() error {
	c.pool.close()
	for _, source := range c.allSources() {
		source.buffer.close()
	}
	return nil
}

func (c *Client) dropBuffers() {
	for _, source := range c.allSources() {
		source.buffer.drop()
	}
}

func (c *Client) allSources() []*Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	sources := []*Source{c.main}
	for _, source := range c.sources {
		sources = append(sources, source)
	}
	return sources
}

// Source hands out the IDs of one source.
type Source struct {
	client *Client
	// name is "" for the default source.
	name   string
	buffer buffer
}

func newSource(c *Client, name string) *Source {
	s := &Source{client: c, name: name}
	s.buffer.start(s)
	return s
}

// Next returns one ID, as Client.Next does.
func (s *Source) Next(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, s.client.contextError(err, 0, nil)
	}
	if id, isThere := s.buffer.take(); isThere {
		return id, nil
	}
	return s.buffer.wait(ctx)
}

// Batch fetches count IDs, as Client.Batch does.
func (s *Source) Batch(ctx context.Context, count int, options ...BatchOption) ([]int64, error) {
	next, err := newRequest(count, options...)
	if err != nil {
		return nil, err
	}
	got, err := s.fetch(ctx, next)
	return got.ids, err
}

func newRequest(count int, options ...BatchOption) (nextRequest, error) {
	next := nextRequest{count: uint32(count), waitMS: waitDefault}
	if count < 1 || int64(count) > math.MaxUint32 {
		return next, optionError("count", "%d IDs are asked for; 1 to the daemon's max_count are allowed, which Info returns", count)
	}
	for _, option := range options {
		if err := option(&next); err != nil {
			return next, err
		}
	}
	return next, nil
}

// fetch asks for IDs of the source.
func (s *Source) fetch(ctx context.Context, next nextRequest) (answer, error) {
	got, err := s.fetchBits(ctx, next)
	if err != nil {
		return answer{}, err
	}
	// IDs increase, so the last one is the largest. Daemons make no such IDs.
	if last := got.ids[len(got.ids)-1]; last < 0 {
		reason := fmt.Sprintf("its ID %d is too large for an int64", uint64(last))
		return answer{}, &EndpointError{Endpoint: got.endpoint, Kind: ErrProtocol, Reason: reason}
	}
	return got, nil
}

// fetchBits asks for IDs of the source, and returns their 64 bits as they are.
func (s *Source) fetchBits(ctx context.Context, next nextRequest) (answer, error) {
	return s.client.do(ctx, request{kind: kindNext, next: next, source: s.name})
}

// BatchOption changes what a Batch call asks for.
type BatchOption func(*nextRequest) error

// Partial accepts fewer IDs, at least one, if the wait ends before all are available.
func Partial() BatchOption {
	return func(next *nextRequest) error {
		next.partial = true
		return nil
	}
}

// MaxWait sets how long the daemon may wait for IDs that its layout does not allow yet. Without it
// the daemon's default applies: 1 s, or two ticks if longer. With 0 the daemon answers at once.
func MaxWait(limit time.Duration) BatchOption {
	return func(next *nextRequest) error {
		if limit < 0 {
			return optionError("MaxWait", "%s is negative; give 0 or more", limit)
		}
		next.waitMS = waitAtMost(limit)
		return nil
	}
}

// tries is what a call remembers of its earlier tries.
type tries struct {
	count int
	last  error
	// exhausted are the refusals that outlast the deadline, one for each endpoint.
	exhausted map[string]*RefusedError
}

// do sends a call until it is answered, and tries again where that may help, before its deadline.
// Retries are safe: the IDs of a lost reply are skipped, and nobody gets them.
func (c *Client) do(parent context.Context, wanted request) (answer, error) {
	ctx, cancel := context.WithTimeout(parent, c.options.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	allowed := time.Until(deadline)
	tried := tries{exhausted: map[string]*RefusedError{}}
	for {
		got, err := c.try(ctx, wanted, deadline, &tried)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			if soonest := tried.soonest(); soonest != nil {
				return answer{}, soonest
			}
			return answer{}, c.contextError(ctx.Err(), allowed, tried.last)
		}
		pause, isRetried := c.pauseBeforeRetry(err, deadline, &tried)
		if !isRetried {
			if soonest := tried.soonest(); soonest != nil {
				err = soonest
			}
			return answer{}, err
		}
		// A refusal with its time to wait helps the caller more than an error about the deadline.
		if time.Until(deadline) <= pause {
			var refused *RefusedError
			if !errors.As(err, &refused) {
				err = c.contextError(context.DeadlineExceeded, allowed, err)
			}
			return answer{}, err
		}
		tried.last = err
		if pause > 0 && sleep(ctx, pause, c.pool.context.Done()) != nil {
			return answer{}, c.contextError(ctx.Err(), allowed, tried.last)
		}
	}
}

// try sends a call once, and waits for its answer.
func (c *Client) try(ctx context.Context, wanted request, deadline time.Time, tried *tries) (answer, error) {
	if ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	attempt := &call{request: wanted, answer: make(chan answer, 1)}
	if len(tried.exhausted)+1 < int(c.pool.targetCount.Load()) {
		attempt.movesOnBy = deadline
	}
	for {
		connection, err := c.pool.connect(ctx)
		if err != nil {
			return answer{}, err
		}
		if err = connection.send(ctx, attempt); err == nil {
			break
		}
		if err != errSendAgain {
			return answer{}, err
		}
	}
	select {
	case got := <-attempt.answer:
		return got, got.err
	case <-ctx.Done():
		attempt.isAbandoned.Store(true)
		return answer{}, ctx.Err()
	case <-c.pool.context.Done():
		return answer{}, ErrClosed
	}
}

// pauseBeforeRetry returns the pause before the next try, and false for no retry.
func (c *Client) pauseBeforeRetry(err error, deadline time.Time, tried *tries) (time.Duration, bool) {
	tried.count++
	var refused *RefusedError
	isRefused := errors.As(err, &refused)
	if isRefused && isExhaustedBeyond(err, deadline) {
		isFirst := tried.exhausted[refused.Endpoint] == nil
		tried.exhausted[refused.Endpoint] = refused
		return 0, isFirst && len(tried.exhausted) < int(c.pool.targetCount.Load())
	}
	if !isRetried(err) {
		return 0, false
	}
	if !isRefused || c.pool.hasOthers() {
		return 0, true
	}
	// A single daemon that refuses because of its state keeps its connection.
	return refused.RetryAfter + c.pool.backoff(tried.count), true
}

// soonest returns the refusal with the shortest time to wait, or nil.
func (t *tries) soonest() error {
	var soonest *RefusedError
	for _, refused := range t.exhausted {
		if soonest == nil || refused.RetryAfter < soonest.RetryAfter {
			soonest = refused
		}
	}
	if soonest == nil {
		return nil
	}
	return soonest
}

// contextError returns the error of a call whose context has ended.
func (c *Client) contextError(err error, allowed time.Duration, last error) error {
	if c.pool.context.Err() != nil {
		return ErrClosed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if allowed <= 0 {
			return &DeadlineError{}
		}
		return c.pool.deadlinePassed(allowed, last)
	}
	return fmt.Errorf("the call was cancelled: %w", err)
}
