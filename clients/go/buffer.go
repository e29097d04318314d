package snowbank

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstFetch is the size of the first fetch. The demand is not known yet, and the layout may
	// have few IDs.
	firstFetch = 16
	// growth is the most by which one fetch may exceed the one before it.
	growth = 4
	// lastingPart is the part of the maximum age that a batch should last, so that few of its IDs
	// get too old.
	lastingPart = 4
	// gathering is the time that a daemon may take to gather a batch. After that the daemon sends
	// a part, so that callers without IDs get some soon.
	gathering = 10 * time.Millisecond

	// emptied is more than any stock holds. Adding to it one by one never overflows.
	emptied = math.MaxInt64 / 2
)

// stock is a batch in the buffer. Goroutines take its IDs without a lock, each position once.
type stock struct {
	ids []int64
	// taken counts the positions that were taken. It still counts when no IDs are left.
	taken atomic.Int64
	// low is the position whose taker starts the next fetch.
	low       int64
	endpoint  string
	openedAt  time.Duration
	goodUntil time.Duration
}

// empty makes sure that no further ID is taken, and returns how many were taken before.
func (s *stock) empty() int64 {
	taken := s.taken.Swap(emptied)
	if taken > int64(len(s.ids)) {
		taken = int64(len(s.ids))
	}
	return taken
}

// buffer hands out the IDs of one source one at a time.
//
//	Next ─▶ current stock ─▶ next stock ◀─ fetch (a goroutine), once half of the current is used
type buffer struct {
	source *Source
	// current is never nil. An empty stock stands for none.
	current atomic.Pointer[stock]

	mu    sync.Mutex
	next  *stock
	fetch *fetch
	// fetchCount is the number of IDs that the next fetch asks for.
	fetchCount int
	// maxBatch is the option MaxBatch, or less if the daemon allows less.
	maxBatch int
	// waiting counts the callers without an ID.
	waiting int
	// highest is the highest ID of the newest stock, which came from highestEndpoint. Lower IDs
	// from that endpoint are skipped.
	highest         int64
	highestEndpoint string
	alarm           alarm
	isClosed        bool
}

// fetch is a fetch in flight.
type fetch struct {
	done chan struct{}
	err  error
}

func (b *buffer) start(source *Source) {
	b.source = source
	b.maxBatch = source.client.options.MaxBatch
	b.fetchCount = min(firstFetch, b.maxBatch)
	b.current.Store(&stock{low: -1})
}

// take returns an ID if the current stock has one.
func (b *buffer) take() (int64, bool) {
	s := b.current.Load()
	at := s.taken.Add(1) - 1
	if at >= int64(len(s.ids)) {
		return 0, false
	}
	if at == s.low {
		b.refill(s)
	}
	return s.ids[at], true
}

// wait returns an ID as soon as a fetch has brought one.
func (b *buffer) wait(ctx context.Context) (int64, error) {
	c := b.source.client
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	allowed := time.Until(deadline)
	b.countWaiting(1)
	defer b.countWaiting(-1)
	isOwn := false
	for {
		inFlight, isNew, err := b.restock()
		if err != nil {
			return 0, err
		}
		if inFlight == nil {
			if id, isThere := b.take(); isThere {
				return id, nil
			}
			continue
		}
		// A fetch that began before this call may have less time left than the call.
		isOwn = isOwn || isNew
		select {
		case <-inFlight.done:
			if inFlight.err != nil && (isOwn || !errors.Is(inFlight.err, context.DeadlineExceeded)) {
				return 0, inFlight.err
			}
			isOwn = true
		case <-ctx.Done():
			return 0, c.contextError(ctx.Err(), allowed, nil)
		}
	}
}

func (b *buffer) countWaiting(change int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting += change
}

// restock makes the next stock the current one if the current one is empty. If there is no next
// stock, it returns the fetch to wait for, and true if that fetch began now.
func (b *buffer) restock() (inFlight *fetch, isNew bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed {
		return nil, false, ErrClosed
	}
	if s := b.current.Load(); s.taken.Load() < int64(len(s.ids)) {
		return nil, false, nil
	}
	now := b.now()
	if s := b.next; s != nil {
		b.next = nil
		if now < s.goodUntil {
			s.openedAt = now
			b.current.Store(s)
			return nil, false, nil
		}
	}
	isNew = b.fetch == nil
	b.startFetch()
	return b.fetch, isNew, nil
}

// refill starts the next fetch, because half of s is used. It asks for what the demand will use in
// a part of the maximum age.
func (b *buffer) refill(s *stock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed || b.next != nil || b.fetch != nil || b.current.Load() != s {
		return
	}
	elapsed := b.now() - s.openedAt
	if elapsed < 1 {
		elapsed = 1
	}
	lasting := b.source.client.options.MaxAge / lastingPart
	wanted := float64(s.low+1) * float64(lasting) / float64(elapsed)
	most := min(b.fetchCount*growth, b.maxBatch)
	b.fetchCount = most
	if wanted < float64(most) {
		b.fetchCount = max(int(wanted), 1)
	}
	b.startFetch()
}

// startFetch starts a fetch unless one is in flight. The lock must be held.
func (b *buffer) startFetch() {
	if b.fetch != nil {
		return
	}
	started := &fetch{done: make(chan struct{})}
	b.fetch = started
	count := min(max(b.fetchCount, b.waiting), b.maxBatch)
	f := fetcher{source: b.source, count: count, highest: b.highest, endpoint: b.highestEndpoint}
	go func() {
		got, err := f.run()
		b.finish(started, got, err)
	}()
}

// finish takes the result of a fetch.
func (b *buffer) finish(finished *fetch, got answer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(finished.done)
	b.fetch = nil
	if err == nil {
		err = b.source.client.pool.check()
	}
	if errors.Is(err, ErrBadCount) && b.maxBatch > 1 {
		// The daemon allows fewer IDs at once. The callers that wait start another fetch.
		b.fetchCount = max(min(b.fetchCount, b.maxBatch)/2, 1)
		b.maxBatch = max(b.maxBatch/2, 1)
		return
	}
	if finished.err = err; err != nil {
		var wentBack *WentBackError
		if errors.As(err, &wentBack) {
			// The caller knows now, so the next fetch takes the lower IDs.
			b.highestEndpoint = ""
		}
		return
	}
	b.keep(got)
}

// keep makes a reply the next stock. The lock must be held.
func (b *buffer) keep(got answer) {
	ids := got.ids
	if got.endpoint == b.highestEndpoint {
		// After a reconnect, another core of the daemon can answer with lower IDs.
		for len(ids) > 0 && ids[0] <= b.highest {
			ids = ids[1:]
		}
	}
	if len(ids) == 0 {
		return
	}
	b.highest, b.highestEndpoint = got.ids[len(got.ids)-1], got.endpoint
	s := &stock{ids: ids, endpoint: got.endpoint, low: int64(len(ids) / 2)}
	s.goodUntil = got.freshAt + b.source.client.options.MaxAge
	if b.alarm == nil {
		b.alarm = b.source.client.options.environment.clock.newAlarm(b.expire)
	}
	b.next = s
	b.arm()
}

// arm sets the alarm to the time when the first IDs get too old. The lock must be held.
func (b *buffer) arm() {
	current := b.current.Load()
	switch {
	case len(current.ids) > 0 && (b.next == nil || current.goodUntil < b.next.goodUntil):
		b.alarm.set(current.goodUntil)
	case b.next != nil:
		b.alarm.set(b.next.goodUntil)
	}
}

// expire drops the IDs that are too old.
func (b *buffer) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isClosed {
		return
	}
	now := b.now()
	current := b.current.Load()
	if len(current.ids) > 0 && now >= current.goodUntil {
		if used := current.empty(); used < int64(len(current.ids)) {
			b.fetchCount = max(min(int(used), b.maxBatch), 1)
		}
		b.current.Store(&stock{low: -1})
	}
	if b.next != nil && now >= b.next.goodUntil {
		b.next = nil
	}
	b.arm()
}

// drop drops all IDs.
func (b *buffer) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current.Load().empty()
	b.next = nil
}

// close drops all IDs for good.
func (b *buffer) close() {
	b.drop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isClosed = true
	if b.alarm != nil {
		b.alarm.stop()
	}
}

func (b *buffer) now() time.Duration { return b.source.client.options.environment.clock.now() }
