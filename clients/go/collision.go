package snowbank

import (
	"context"
	"sync"
	"time"
)

const (
	// confirmation is the time before the first look, and between two looks while daemons collide.
	// A daemon that restarts, or that passes its worker IDs on, can look like two for a moment, so
	// a collision counts when two looks in a row find it.
	confirmation = time.Second
	// checkPause is the time between two looks while a daemon does not answer, and the shortest
	// between two checks.
	checkPause = 60 * time.Second
)

// startCheck compares the daemons' worker IDs in the background, unless that is in progress. Two
// daemons with the same ones hand out the same IDs. A daemon refuses a worker ID that another one
// of its machine has. Containers and machines do not see each other's locks, but a client sees all
// of its endpoints. The lock must be held.
func (p *pool) startCheck() {
	if len(p.targets) < 2 || p.isChecking {
		return
	}
	p.isChecking = true
	wait := confirmation
	if since := time.Since(p.checkedAt); !p.checkedAt.IsZero() && since < checkPause {
		wait += checkPause - since
	}
	p.checkedAt = time.Now().Add(wait - confirmation)
	go p.compareAll(wait)
}

// compareAll looks until all daemons have answered and none collide.
func (p *pool) compareAll(wait time.Duration) {
	defer func() {
		p.mu.Lock()
		p.isChecking = false
		p.mu.Unlock()
	}()
	var earlier *collision
	for {
		if sleep(p.context, wait, nil) != nil {
			return
		}
		found, isSilent := p.look()
		// A daemon that did not answer, as in a restart, may still have the same worker IDs.
		isConfirmed := found == nil && (!isSilent || earlier == nil) || found != nil && earlier != nil && *found == *earlier
		if isConfirmed {
			p.setCollision(found)
		}
		switch {
		case found != nil || isSilent && earlier != nil:
			wait = confirmation
		case isSilent:
			wait = checkPause
		default:
			return
		}
		earlier = found
	}
}

func (p *pool) setCollision(found *collision) {
	p.mu.Lock()
	p.collision = nil
	if found != nil {
		p.collision = &SameWorkerIDsError{One: found.one, Other: found.other, WorkerID: found.workerID, Layout: found.layout}
	}
	p.mu.Unlock()
	if found != nil {
		p.onCollision()
	}
}

// collision is two targets whose daemons can hand out the same ID.
type collision struct {
	one, other string
	instances  [2]string
	workerID   uint64
	layout     string
}

// look asks each daemon for INFO, on connections that are open at the same time. It returns true if
// one did not answer.
func (p *pool) look() (found *collision, isSilent bool) {
	p.mu.Lock()
	targets := append([]*target(nil), p.targets...)
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.context, p.options.ConnectTimeout)
	defer cancel()
	answers := make([]*connection, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Add(1)
		go func(i int, t *target) {
			defer all.Done()
			if c, err := p.open(ctx, &target{endpoint: t.endpoint, ip: t.ip, label: t.label}); err == nil {
				answers[i] = c
			}
		}(i, t)
	}
	all.Wait()
	for i, one := range answers {
		if one == nil {
			isSilent = true
			continue
		}
		defer one.socket.Close()
		for _, other := range answers[:i] {
			if other != nil && found == nil {
				found = compare(other, one)
			}
		}
	}
	return found, isSilent
}

func compare(one, other *connection) *collision {
	workerID, layout, isShared := sharedWorkerID(one.info, other.info)
	if !isShared {
		return nil
	}
	return &collision{
		one:       one.target.label,
		other:     other.target.label,
		instances: [2]string{one.info.Instance, other.info.Instance},
		workerID:  workerID,
		layout:    layout,
	}
}
