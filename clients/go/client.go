package snowbank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// eventsMax is the most events that the application has not heard yet. Later ones are lost.
const eventsMax = 1_000

// shutdownPoll is how often Shutdown looks whether calls are in flight.
const shutdownPoll = 5 * time.Millisecond

// Token is a secret that a daemon asks for. It is never printed.
type Token string

// Format prints "(secret)" for every verb.
func (Token) Format(state fmt.State, _ rune) { fmt.Fprint(state, "(secret)") }

// MarshalText returns "(secret)".
func (Token) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Options are the options of a Client. The zero value of each but Endpoints is its default.
type Options struct {
	// Endpoints are the daemons: "host:port", "[IPv6]:port", "tls:host:port" or "unix:/path". The
	// client begins with a random one, and stays where it is served.
	Endpoints []string
	// Source is the name of the source to take IDs from, and "" the daemon's first one.
	Source string
	// Timeout is the deadline of a call (5 s), if its context does not end earlier. It covers
	// connecting, the daemon's wait and all tries.
	Timeout time.Duration

	// Token is for daemons that ask for one: 1 to 512 bytes. TokenFile has the token in its one
	// line, and is read again for each connection.
	Token     Token
	TokenFile string

	// CAFile has the authorities to trust for "tls:" endpoints, in PEM. Without it the system's
	// count. CertFile and KeyFile are the client's own certificate. All are read again for each
	// connection.
	CAFile, CertFile, KeyFile string
	// ServerName is the name in the daemons' certificates. Without it the endpoint's host counts.
	ServerName string

	// PreferFirst says that Endpoints are in the order that the caller prefers: the client begins
	// with the first, and goes back to it within about a minute after a failure.
	PreferFirst bool
	// TakeTurns makes calls use all endpoints in turn, each with a connection of its own, as clients
	// of a pair of ticket servers do. The IDs of successive calls do not increase then.
	TakeTurns bool

	// OnEvent is called with what an operator may want to know, in order, by a goroutine of its own.
	// While it does not return, up to 1,000 later events wait. LogEvents makes one for log/slog.
	OnEvent func(Event)

	token func() string
	times *times
}

// times are the limits of the protocol's page, and the clocks. Tests replace some.
type times struct {
	resolve, accept, connect, answer   time.Duration
	backoffMin, backoffMax             time.Duration
	firstRound, roundEvery, roundAgain time.Duration
	now                                func() moment
	lookup                             func(ctx context.Context, host string) ([]string, error)
}

func usualTimes() *times {
	return &times{
		resolve: time.Second, accept: time.Second, connect: 2 * time.Second, answer: time.Second,
		backoffMin: 50 * time.Millisecond, backoffMax: time.Second,
		firstRound: 10 * time.Second, roundEvery: time.Minute, roundAgain: time.Second,
		now: now, lookup: net.DefaultResolver.LookupHost,
	}
}

// Client hands out IDs of one daemon, or of several. It is safe for use by many goroutines, which
// share its connection. The first call connects. A client that is dropped frees its connection and
// its goroutines, as Close does.
type Client struct {
	core *core
}

// core is what a client's goroutines hold, so that they do not keep the client itself.
//
//	Next ─▶ buffer ─▶ call ─▶ endpoint ─▶ connection ─▶ daemon
//	Batch, Ping ──────▶
type core struct {
	options Options
	times   *times
	buffer  buffer
	counts  counts

	// mu guards the endpoints. Current is the index of the one that is connected, or that is next.
	mu        sync.Mutex
	endpoints []*endpoint
	current   int

	// watching starts the rounds, which collision is from.
	watching  sync.Once
	collision atomic.Pointer[CollisionError]

	ctx    context.Context
	cancel context.CancelFunc
	// calls counts those in flight, for Shutdown.
	calls     atomic.Int64
	isClosing atomic.Bool

	// telling guards the events that the application has not heard yet.
	telling   sync.Mutex
	isTelling bool
	events    []Event
}

// New makes a client. It returns an OptionError if an option is not allowed, and does not connect.
func New(options Options) (*Client, error) {
	endpoints, err := options.check()
	if err != nil {
		return nil, err
	}
	// Somebody who prints a client must not print its token.
	token := string(options.Token)
	options.token, options.Token = func() string { return token }, ""
	if options.times == nil {
		options.times = usualTimes()
	}
	c := &core{options: options, times: options.times, endpoints: endpoints}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if !options.PreferFirst {
		c.current = int(random(int64(len(endpoints))))
	}
	c.buffer.start(c)
	client := &Client{core: c}
	runtime.SetFinalizer(client, func(client *Client) { client.core.close() })
	return client, nil
}

// check returns the endpoints, or what is wrong with an option. A Timeout of 0 becomes the default.
func (o *Options) check() (endpoints []*endpoint, err error) {
	usesTLS, isGiven := false, map[string]bool{}
	for _, text := range o.Endpoints {
		a, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		if usesTLS = usesTLS || a.tls; !isGiven[text] {
			endpoints = append(endpoints, &endpoint{address: a})
		}
		isGiven[text] = true
	}
	switch {
	case len(endpoints) == 0:
		return nil, optionError("Endpoints", "there is none; at least one is needed, such as 127.0.0.1:7660")
	case o.TakeTurns && o.PreferFirst:
		return nil, optionError("PreferFirst", "TakeTurns is set too; set one of them")
	case o.Timeout < 0:
		return nil, optionError("Timeout", "%s is negative; give a time above 0, or 0 for the default of 5s", o.Timeout)
	case o.Timeout == 0:
		o.Timeout = 5 * time.Second
	}
	if len(o.Source) > nameBytesMax || !utf8.ValidString(o.Source) {
		return nil, optionError("Source", "%q is no name of a source; 1 to %d bytes of UTF-8 are allowed", o.Source, nameBytesMax)
	}
	if o.Token != "" && o.TokenFile != "" {
		return nil, optionError("Token", "TokenFile is set too; set one of them")
	}
	if err := tokenProblem("Token", string(o.Token)); err != nil {
		return nil, err
	}
	if o.TokenFile != "" {
		if _, err := o.readToken(); err != nil {
			return nil, err
		}
	}
	if !usesTLS && o.CAFile+o.CertFile+o.KeyFile+o.ServerName != "" {
		return nil, optionError("CAFile", "TLS is set, and no endpoint uses it; write tls:%s", o.Endpoints[0])
	}
	_, err = o.tlsConfig("")
	return endpoints, err
}

// Next returns one ID: at once from a buffer that is refilled ahead, or with the next reply if the
// buffer is empty. IDs increase while they come from one daemon.
func (c *Client) Next(ctx context.Context) (int64, error) {
	if ctx != nil && ctx.Err() == nil {
		if id, isThere := c.core.buffer.take(); isThere {
			return id, nil
		}
	}
	return run(ctx, c, request{}, c.core.buffer.wait)
}

var errNoContext = optionError("ctx", "it is nil; give context.Background()")

// Batch fetches count IDs in one round trip. They increase, and nobody else has them.
func (c *Client) Batch(ctx context.Context, count int) ([]int64, error) {
	if count < 1 || int64(count) > math.MaxUint32 {
		return nil, optionError("count", "%d IDs are asked for; 1 to %d are allowed, or fewer if the daemon's max_count is lower",
			count, uint32(math.MaxUint32))
	}
	got, err := run(ctx, c, request{kind: kindNext, count: uint32(count), text: c.core.options.Source}, c.core.do)
	if err != nil {
		return nil, err
	}
	c.core.counts.ids.Add(uint64(len(got.ids)))
	return got.ids, nil
}

// Ping asks a daemon for a sign of life, as a health check does. It connects if there is no
// connection.
func (c *Client) Ping(ctx context.Context) error {
	_, err := run(ctx, c, request{kind: kindPing}, c.core.do)
	return err
}

// run makes a call within the context and the client's timeout. The client is kept until it ends.
func run[T any](ctx context.Context, c *Client, r request, work func(*call) (T, error)) (got T, err error) {
	defer runtime.KeepAlive(c)
	if ctx == nil {
		return got, errNoContext
	}
	if c.core.isClosing.Load() || c.core.ctx.Err() != nil {
		return got, ErrClosed
	}
	c.core.calls.Add(1)
	defer c.core.calls.Add(-1)
	k, cancel := c.core.call(ctx, r)
	defer cancel()
	return work(k)
}

// Stats returns the client's figures at once.
func (c *Client) Stats() Stats {
	n := &c.core.counts
	s := Stats{Calls: n.calls.Load(), Retries: n.retries.Load(), Refusals: n.refusals.Load(), Failures: n.failures.Load(),
		IDs: c.core.buffer.handedOut(), Dropped: n.dropped.Load(), Oldest: time.Duration(n.oldest.Load())}
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	for _, e := range c.core.endpoints {
		if e.connection != nil && e.connection.isGreeted && s.Endpoint == "" {
			s.Endpoint = e.connection.label
		}
	}
	return s
}

// Close ends the client and its calls in flight at once: they return ErrClosed. IDs left in the
// buffer are skipped.
func (c *Client) Close() error {
	c.core.close()
	return nil
}

// Shutdown lets the calls in flight end until ctx ends, and then closes the client. Later calls
// return ErrClosed. It returns the context's error if calls were cut off.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	defer c.core.close()
	c.core.isClosing.Store(true)
	c.core.buffer.drop()
	for c.core.calls.Load() > 0 {
		select {
		case <-time.After(shutdownPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *core) close() {
	c.cancel()
	c.buffer.drop()
}

// problem returns why no call may get IDs now.
func (c *core) problem() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if collision := c.collision.Load(); collision != nil {
		return collision
	}
	return nil
}

// failed counts the failure or the refusal of an endpoint, and reports it: both if a refusal without
// a tag has ended the connection. What a closed client ends itself has not failed.
func (c *core) failed(endpoint string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	refused := (*RefusedError)(nil)
	if errors.As(err, &refused) {
		c.counts.refusals.Add(1)
		c.event(Event{Kind: Refused, Endpoint: endpoint, Err: refused})
	}
	if err != refused {
		c.counts.failures.Add(1)
		c.event(Event{Kind: Failed, Endpoint: endpoint, Err: err})
	}
}

// event tells the application. No call waits for its function: a goroutine calls that, and ends when
// there are no events.
func (c *core) event(e Event) {
	c.telling.Lock()
	defer c.telling.Unlock()
	if c.options.OnEvent == nil || len(c.events) == eventsMax {
		return
	}
	if c.events = append(c.events, e); !c.isTelling {
		c.isTelling = true
		go c.tell()
	}
}

func (c *core) tell() {
	for {
		c.telling.Lock()
		if len(c.events) == 0 {
			c.isTelling = false
			c.telling.Unlock()
			return
		}
		e := c.events[0]
		c.events = c.events[1:]
		c.telling.Unlock()
		c.options.OnEvent(e)
	}
}
