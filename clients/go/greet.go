package snowbank

import (
	"sync"
	"time"
)

// infoShownMax is the most of an INFO reply that a CollisionError shows, in bytes.
const infoShownMax = 1_000

// claimants are two instances that claim one number, the lower one first.
type claimants struct{ one, other, claim uint64 }

// rounds greets all endpoints again and again, and compares the claims of their daemons. Two that
// share a claim in two rounds end all calls, until a round finds them gone.
func (c *core) rounds() {
	wait := time.Duration(random(int64(c.times.firstRound)))
	// Their own, because calls remember which address they used last.
	endpoints := make([]endpoint, len(c.endpoints))
	for i, e := range c.endpoints {
		endpoints[i].address = e.address
	}
	var before map[claimants][2]int
	for c.pause(c.ctx, wait); c.ctx.Err() == nil; c.pause(c.ctx, wait) {
		all := c.round(endpoints)
		found := collisions(all)
		c.judge(before, found, all)
		if before, wait = found, c.times.roundEvery; len(found) > 0 {
			wait = c.times.roundAgain
		}
		isFirst := c.options.PreferFirst
		for index, conn := range all {
			if conn == nil {
				continue
			}
			if conn.end(errLeft); isFirst {
				c.backTo(index)
				isFirst = false
			}
		}
	}
}

// round greets all endpoints at once. The connections of those that greeted are open.
func (c *core) round(endpoints []endpoint) []*connection {
	all := make([]*connection, len(endpoints))
	var left sync.WaitGroup
	for i := range endpoints {
		left.Add(1)
		go func(i int) {
			defer left.Done()
			if conn := newConnection(c, &endpoints[i]); conn.dial() == nil {
				close(conn.greeted)
				all[i] = conn
			}
		}(i)
	}
	left.Wait()
	return all
}

// collisions returns the pairs of different daemons that share a claim, with their indices.
func collisions(all []*connection) map[claimants][2]int {
	found := map[claimants][2]int{}
	holders := map[uint64][]int{}
	for i, conn := range all {
		if conn == nil {
			continue
		}
		for _, claim := range conn.claims {
			for _, holder := range holders[claim] {
				if one, other := all[holder].instance, conn.instance; one != other {
					found[claimants{min(one, other), max(one, other), claim}] = [2]int{holder, i}
				}
			}
			holders[claim] = append(holders[claim], i)
		}
	}
	return found
}

// judge begins a collision if a pair was there in the round before, or ends it without any pair.
func (c *core) judge(before, found map[claimants][2]int, all []*connection) {
	now := c.collision.Load()
	for pair, indices := range found {
		if _, isAgain := before[pair]; !isAgain {
			continue
		}
		if now == nil {
			err := &CollisionError{Claim: pair.claim, Endpoints: [2]string{all[indices[0]].label, all[indices[1]].label}}
			c.collision.Store(err)
			c.buffer.drop()
			c.event(Event{Kind: Collision, Endpoint: err.Endpoints[0], Other: err.Endpoints[1], Err: err})
			// Calls fail meanwhile. The error that they have got does not change.
			full := *err
			for i, index := range indices {
				if full.Infos[i] = all[index].info(); len(full.Infos[i]) > infoShownMax {
					full.Infos[i] = full.Infos[i][:infoShownMax] + "…"
				}
			}
			c.collision.Store(&full)
		}
		return
	}
	if now != nil && len(found) == 0 {
		c.collision.Store(nil)
		c.event(Event{Kind: CollisionOver, Endpoint: now.Endpoints[0], Other: now.Endpoints[1]})
	}
}

// info returns what the daemon says of itself, or why not.
func (c *connection) info() string {
	got := c.ask(&call{request: request{kind: kindInfo}, ctx: c.core.ctx})
	if got.err != nil {
		return got.err.Error()
	}
	return oneLine(string(got.json))
}
