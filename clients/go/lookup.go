package snowbank

import (
	"context"
	"fmt"
	"time"
)

const (
	// lookupPause is the shortest time between two lookups of the names. Calls do not wait for
	// them.
	lookupPause = time.Second
	// turnsLookupPause is the time after which a client that takes turns looks for new addresses.
	turnsLookupPause = 30 * time.Second
)

// lookup is the state of the lookups of all names.
type lookup struct {
	// isNeeded is true if an endpoint has a name.
	isNeeded    bool
	isRunning   bool
	lastStarted time.Time
}

// lookUpAgain looks up all names in the background, unless that was done a moment ago. The lock
// must be held.
func (p *pool) lookUpAgain(pause time.Duration) {
	if !p.lookup.isNeeded || p.lookup.isRunning || time.Since(p.lookup.lastStarted) < pause {
		return
	}
	p.lookup.isRunning, p.lookup.lastStarted = true, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(p.context, p.options.ConnectTimeout)
		defer cancel()
		for _, endpoint := range p.endpoints {
			if endpoint.isName() {
				// A failure leaves the addresses as they are.
				_ = p.lookUp(ctx, endpoint)
			}
		}
		p.mu.Lock()
		p.lookup.isRunning = false
		p.mu.Unlock()
	}()
}

// lookUp asks for the addresses of a name, and makes them its targets.
func (p *pool) lookUp(ctx context.Context, endpoint *address) error {
	ips, err := p.environment.lookup(ctx, endpoint.host)
	if err == nil && len(ips) == 0 {
		err = fmt.Errorf("the name has no address")
	}
	if err != nil {
		return &EndpointError{Endpoint: endpoint.text, Kind: ErrUnreachable, Reason: describe(err), cause: err}
	}
	if !p.options.PreferFirst {
		// In random order, so that clients spread over the addresses.
		p.dice.shuffle(ips)
	}
	gone := p.setAddresses(endpoint, ips)
	for _, c := range gone {
		c.retire()
	}
	return nil
}

// setAddresses gives an endpoint these addresses. Those that it had keep their place, health and
// connection. It returns the connections to addresses that the name no longer has.
func (p *pool) setAddresses(endpoint *address, ips []string) (gone []*connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	isNew := make(map[string]bool, len(ips))
	for _, ip := range ips {
		isNew[ip] = true
	}
	current := p.targets[p.current]
	var targets []*target
	for _, t := range p.targets {
		if t.endpoint != endpoint {
			targets = append(targets, t)
			continue
		}
		if isNew[t.ip] {
			targets = append(targets, t)
			delete(isNew, t.ip)
		} else if t.connection != nil {
			gone = append(gone, t.connection)
			t.connection = nil
		}
		if isLastOf(endpoint, t, p.targets) {
			targets = append(targets, newTargets(endpoint, ips, isNew)...)
		}
	}
	p.targets = targets
	p.targetCount.Store(int32(len(targets)))
	if p.current = p.indexOf(current); p.current < 0 {
		p.current = 0
	}
	p.wakeUp()
	return gone
}

// isLastOf returns true if t is the last target of its endpoint: new ones follow it.
func isLastOf(endpoint *address, t *target, targets []*target) bool {
	var last *target
	for _, other := range targets {
		if other.endpoint == endpoint {
			last = other
		}
	}
	return last == t
}

func newTargets(endpoint *address, ips []string, isNew map[string]bool) (targets []*target) {
	for _, ip := range ips {
		if isNew[ip] {
			delete(isNew, ip)
			label := fmt.Sprintf("%s (%s)", endpoint.text, ip)
			targets = append(targets, &target{endpoint: endpoint, ip: ip, label: label})
		}
	}
	return targets
}
