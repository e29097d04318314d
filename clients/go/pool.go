package snowbank

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// target is one address of an endpoint, with its health.
type target struct {
	endpoint *address
	// ip is the address to dial, and empty for a name that was not looked up yet. A Unix socket has
	// none.
	ip string
	// label names the target in errors.
	label string

	// failures counts those since it last served.
	failures int
	// notBefore is the earliest time for the next try. Until then the target is ejected.
	notBefore time.Time
	// exhaustedUntil is the time until which another target is tried first, if there is one.
	exhaustedUntil time.Time
	// failure is the error of the last try.
	failure error
	// stage says what a connection being made waits for.
	stage      string
	connection *connection
	attempt    *attempt
}

// attempt is a connection being made.
type attempt struct {
	done chan struct{}
	// isReturn is true if another target serves meanwhile. No call waits for it while there is one
	// to try.
	isReturn bool
	// final is an error that would repeat for every call.
	final error
}

// pool holds the targets and their connections. It chooses the one for the next call.
type pool struct {
	options     Options
	environment *environment
	endpoints   []*address
	dice        *dice
	// readToken returns the token, or "" if there is none.
	readToken func() (string, error)
	// context ends when the client is closed.
	context context.Context
	cancel  context.CancelFunc
	// targetCount is len(targets), for those who cannot take the lock.
	targetCount atomic.Int32
	// onCollision is called when two endpoints turn out to hand out the same IDs.
	onCollision func()

	mu      sync.Mutex
	targets []*target
	// current is the index of the target that serves, or whose turn is next.
	current int
	// changed is closed when targets come or go, and when the client is closed.
	changed    chan struct{}
	collision  error
	isChecking bool
	checkedAt  time.Time
	lookup     lookup
}

func newPool(options Options, endpoints []*address) *pool {
	p := &pool{
		options:     options,
		environment: options.environment,
		endpoints:   endpoints,
		dice:        newDice(),
		changed:     make(chan struct{}),
	}
	p.context, p.cancel = context.WithCancel(context.Background())
	for _, endpoint := range endpoints {
		t := &target{endpoint: endpoint, ip: endpoint.host, label: endpoint.text}
		if endpoint.isName() {
			t.ip = ""
			p.lookup.isNeeded = true
		}
		p.targets = append(p.targets, t)
	}
	p.targetCount.Store(int32(len(p.targets)))
	return p
}

// hasOthers returns true if a call has more than one daemon to ask.
func (p *pool) hasOthers() bool { return p.targetCount.Load() > 1 }

// connect returns the connection for the next call. It waits until there is one.
func (p *pool) connect(ctx context.Context) (*connection, error) {
	for {
		p.mu.Lock()
		if err := p.refusal(); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		c, t := p.choose()
		if c != nil {
			p.mu.Unlock()
			return c, nil
		}
		wait := time.Until(t.notBefore)
		var under *attempt
		if wait <= 0 {
			under = p.attempt(t)
		}
		changed := p.changed
		p.mu.Unlock()
		if under == nil {
			if err := sleep(ctx, wait, changed); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-under.done:
			if under.final != nil {
				return nil, under.final
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// check returns the error of every call while the client is closed, or two endpoints hand out the
// same IDs.
func (p *pool) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal()
}

// refusal is check for those who hold the lock.
func (p *pool) refusal() error {
	if p.context.Err() != nil {
		return ErrClosed
	}
	return p.collision
}

// choose returns the connection for the next call, or else the target to connect to. The lock must
// be held.
func (p *pool) choose() (*connection, *target) {
	if p.options.TakeTurns {
		return p.chooseInTurn()
	}
	if c := p.targets[p.current].connection; c != nil {
		if p.options.PreferFirst {
			p.attemptEarlier()
		}
		return c, nil
	}
	for _, t := range p.targets {
		if t.attempt != nil && !t.attempt.isReturn {
			return nil, t
		}
	}
	return nil, p.soonest()
}

// attemptEarlier connects to the endpoints before the one that serves, in the background. The lock
// must be held.
func (p *pool) attemptEarlier() {
	now := time.Now()
	for _, t := range p.earlierThan(p.targets[p.current]) {
		if t.attempt == nil && !t.notBefore.After(now) && !t.exhaustedUntil.After(now) {
			p.attempt(t).isReturn = true
		}
	}
}

// earlierThan returns the targets of the endpoints before that of t. The lock must be held.
func (p *pool) earlierThan(t *target) []*target {
	for at, other := range p.targets {
		if other.endpoint == t.endpoint {
			return p.targets[:at]
		}
	}
	return nil
}

// chooseInTurn goes round the targets. A target that has failed is connected again in the
// background, so that calls do not wait for it while another one serves.
func (p *pool) chooseInTurn() (*connection, *target) {
	p.lookUpAgain(turnsLookupPause)
	now := time.Now()
	for range p.targets {
		t := p.targets[p.current]
		p.current = (p.current + 1) % len(p.targets)
		switch {
		case t.exhaustedUntil.After(now):
		case t.connection != nil:
			return t.connection, nil
		case t.notBefore.After(now):
		case t.failures == 0:
			return nil, t
		default:
			p.attempt(t)
		}
	}
	t := p.soonest()
	return t.connection, t
}

// soonest returns the target that may be tried soonest. Of several it prefers those that are not
// exhausted, then those that have not failed, and of these the current one or the next in the
// circle. With PreferFirst the circle begins with the first. The lock must be held.
func (p *pool) soonest() *target {
	now := time.Now()
	first := p.current
	if p.options.PreferFirst {
		first = 0
	}
	best := p.targets[first]
	for step := 1; step < len(p.targets); step++ {
		if t := p.targets[(first+step)%len(p.targets)]; t.isBetter(best, now) {
			best = t
		}
	}
	return best
}

func (t *target) isBetter(other *target, now time.Time) bool {
	switch {
	case isSooner(t.notBefore, other.notBefore, now):
		return true
	case isSooner(other.notBefore, t.notBefore, now):
		return false
	case isSooner(t.exhaustedUntil, other.exhaustedUntil, now):
		return true
	case isSooner(other.exhaustedUntil, t.exhaustedUntil, now):
		return false
	default:
		return t.failures == 0 && other.failures > 0
	}
}

// isSooner compares two times, of which those that have passed are equal.
func isSooner(one, other, now time.Time) bool {
	return other.After(now) && one.Before(other)
}

// attempt connects to a target in the background, unless that is in progress. The lock must be
// held.
func (p *pool) attempt(t *target) *attempt {
	if t.attempt == nil {
		t.attempt = &attempt{done: make(chan struct{})}
		go p.try(t, t.attempt)
	}
	return t.attempt
}

// try makes one connection to a target.
func (p *pool) try(t *target, under *attempt) {
	ctx, cancel := context.WithTimeout(p.context, p.options.ConnectTimeout)
	defer cancel()
	if t.ip == "" && t.endpoint.path == "" {
		err := p.lookUp(ctx, t.endpoint)
		p.mu.Lock()
		p.finish(t, under, err)
		p.mu.Unlock()
		return
	}
	c, err := p.open(ctx, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.context.Err() != nil {
		c.socket.Close()
		err = ErrClosed
	}
	if err == nil {
		p.serve(t, c)
	}
	p.finish(t, under, err)
}

// serve makes a connection that of its target. The lock must be held.
func (p *pool) serve(t *target, c *connection) {
	at := p.indexOf(t)
	if at < 0 {
		// The name lost this address meanwhile.
		c.socket.Close()
		return
	}
	t.connection, t.failure = c, nil
	go c.read()
	go c.write()
	if !p.options.TakeTurns {
		p.goOver(at)
	}
	p.startCheck()
}

// goOver lets the target at that index serve. The connection that it replaces answers its calls in
// flight. The lock must be held.
func (p *pool) goOver(at int) {
	left := p.current
	if left < at && p.targets[left].connection != nil {
		// An earlier endpoint connected meanwhile.
		left = at
	} else {
		p.current = at
	}
	if t := p.targets[left]; left != p.current && t.connection != nil {
		// It takes the connection's lock, which comes before this one.
		go t.connection.retire()
		t.connection = nil
	}
}

// finish ends an attempt. The lock must be held.
func (p *pool) finish(t *target, under *attempt, err error) {
	t.attempt, t.stage = nil, ""
	if err != nil {
		t.failure = err
		p.eject(t, retryAfter(err))
		under.final = p.final(err)
	}
	close(under.done)
}

// final returns the error of the waiting calls, if no further try can help them. A server of
// another protocol does not keep the client from the other endpoints. The lock must be held.
func (p *pool) final(err error) error {
	if p.context.Err() != nil {
		return ErrClosed
	}
	if isFinal(err) {
		return err
	}
	failures := p.failures()
	for _, failure := range failures {
		if kind, isEndpoint := failure.(*EndpointError); !isEndpoint || kind.Kind != ErrProtocol {
			return nil
		}
	}
	if len(failures) < len(p.targets) {
		return nil
	}
	return joinErrors(failures)
}

// ended notes that a connection has ended, and why. It is called once for each, under the
// connection's lock.
func (p *pool) ended(c *connection, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := c.target
	if t.connection == c {
		t.connection = nil
	}
	// Without this condition the pause would not grow for a daemon that greets and then fails every
	// call.
	if c.hasAnswered {
		t.failures = 0
	}
	if c.isRetired || err == ErrClosed {
		return
	}
	asked := time.Duration(0)
	if isRetried(err) {
		asked = retryAfter(err)
	}
	t.failure = err
	p.eject(t, asked)
}

// eject leaves a target alone for its back-off, plus the time that it asked for. That time counts
// up to MaxBackoff, because a restart can bring the daemon back earlier. The lock must be held.
func (p *pool) eject(t *target, asked time.Duration) {
	t.failures++
	if asked > p.options.MaxBackoff {
		asked = p.options.MaxBackoff
	}
	t.notBefore = time.Now().Add(asked + p.backoff(t.failures))
	// Its back-off may be as good as none, and others come first.
	if p.targets[p.current] == t {
		p.current = (p.current + 1) % len(p.targets)
	}
	p.lookUpAgain(lookupPause)
}

// backoff returns a random pause after that many failures in a row. Its limit is MinBackoff,
// doubled for each failure but the first. The randomness spreads the clients of a daemon that comes
// back.
func (p *pool) backoff(failures int) time.Duration {
	limit := p.options.MinBackoff
	for ; failures > 1 && limit < p.options.MaxBackoff; failures-- {
		limit *= 2
	}
	if limit > p.options.MaxBackoff {
		limit = p.options.MaxBackoff
	}
	return p.dice.upTo(limit)
}

// preferOthers leaves a daemon that has no IDs in time for one call. It may have some for the next
// call, so with no other daemon left it is tried after a short pause. The connection takes no
// further calls; its lock must be held.
func (p *pool) preferOthers(c *connection, refused *RefusedError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := c.target
	if t.connection == c {
		t.connection = nil
	}
	asked := refused.RetryAfter
	if asked > p.options.MaxBackoff {
		asked = p.options.MaxBackoff
	}
	t.failure = refused
	t.notBefore = time.Now().Add(p.backoff(1))
	t.exhaustedUntil = time.Now().Add(asked)
}

// close ends all connections and everything in the background.
func (p *pool) close() {
	p.cancel()
	p.mu.Lock()
	p.wakeUp()
	var open []*connection
	for _, t := range p.targets {
		if t.connection != nil {
			open = append(open, t.connection)
		}
	}
	p.mu.Unlock()
	for _, c := range open {
		c.end(ending{err: ErrClosed})
	}
}

// wakeUp lets the calls that wait for a back-off choose again. The lock must be held.
func (p *pool) wakeUp() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pool) setStage(t *target, stage string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.stage = stage
}

// failures returns the error of each target that has failed since it last greeted. The lock must be
// held.
func (p *pool) failures() []error {
	var failures []error
	for _, t := range p.targets {
		if t.failure != nil {
			failures = append(failures, t.failure)
		}
	}
	return failures
}

// deadlinePassed returns the error of a call that has reached its deadline. last is the error of
// its last try.
func (p *pool) deadlinePassed(allowed time.Duration, last error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failures []error
	for _, t := range p.targets {
		switch {
		case t.connection != nil:
			return &DeadlineError{Allowed: allowed, Endpoint: t.label, Last: last}
		case t.stage != "" && t.failure == nil:
			failures = append(failures, &EndpointError{Endpoint: t.label, Kind: ErrUnreachable, Reason: t.stage})
		case t.failure == nil:
			failures = append(failures, &EndpointError{Endpoint: t.label, Kind: ErrUnreachable,
				Reason: "the client had no time to connect"})
		default:
			failures = append(failures, t.failure)
		}
	}
	return &DeadlineError{Allowed: allowed, Last: joinErrors(failures)}
}

func (p *pool) indexOf(t *target) int {
	for at := range p.targets {
		if p.targets[at] == t {
			return at
		}
	}
	return -1
}

// sleep waits for a time, a wake-up or the end of the context.
func sleep(ctx context.Context, wait time.Duration, wakeUp <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wakeUp:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
