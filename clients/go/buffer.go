package snowbank

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fetchMin is the size of the first fetch, and the least: the layout may have few IDs.
	fetchMin = 16
	fetchMax = 10_000
	// quickPart: a batch is quick if half of it went within this part of the time for which it is
	// good.
	quickPart = 4
	// lookEvery: a look at the clocks covers the IDs up to the next multiple of it, for coverTime.
	lookEvery = 16
	coverTime = 10 * time.Millisecond
	// emptied is more than any stock holds. Adding to it one by one never overflows.
	emptied = math.MaxInt64 / 2
)

// moment is a time by both clocks. The wall clock goes on while the machine sleeps, and the
// monotonic one does not go back.
type moment struct{ wall, monotonic int64 }

var processStart = time.Now()

func now() moment {
	t := time.Now()
	return moment{t.UnixNano(), int64(t.Sub(processStart))}
}

// since returns the time from an earlier moment, by the clock that went further.
func (m moment) since(earlier moment) time.Duration {
	wall, monotonic := m.wall-earlier.wall, m.monotonic-earlier.monotonic
	if wall > monotonic {
		return time.Duration(wall)
	}
	return time.Duration(monotonic)
}

// stock is a batch in the buffer. Goroutines take its IDs without a lock, each position once.
type stock struct {
	ids []int64
	// taken counts the positions that were taken. It still counts when no IDs are left.
	taken atomic.Int64
	// low is the position whose taker starts the next fetch.
	low     int64
	goodFor time.Duration
	// due is when the daemon could read the request for them.
	due moment
	// openedAt is when the first ID could be taken, by the monotonic clock.
	openedAt int64
}

// buffer hands out IDs one at a time.
//
//	Next ─▶ current stock ─▶ next stock ◀─ fetch (a goroutine), once half of the current is used
type buffer struct {
	core *core
	// current is never nil. An empty stock stands for none.
	current atomic.Pointer[stock]
	// isCovered is true for coverTime after a look.
	isCovered atomic.Bool

	mu    sync.Mutex
	next  *stock
	fetch *fetch
	// size is the number of IDs that the next fetch asks for.
	size int
	// waiting counts the calls without an ID.
	waiting atomic.Int64
}

// fetch is a fetch in flight. Its error is there when it is done.
type fetch struct {
	done chan struct{}
	err  error
}

func (b *buffer) start(c *core) {
	b.core, b.size = c, fetchMin
	b.current.Store(&stock{})
}

// take returns an ID if the current stock has one.
func (b *buffer) take() (int64, bool) {
	s := b.current.Load()
	at := s.taken.Add(1) - 1
	if at >= int64(len(s.ids)) {
		return 0, false
	}
	if (at%lookEvery == 0 || !b.isCovered.Load()) && !b.look(s, at) {
		return 0, false
	}
	if at == s.low {
		b.refill(s)
	}
	return s.ids[at], true
}

// look returns false, and drops the stock, if it is too old.
func (b *buffer) look(s *stock, at int64) bool {
	age := b.core.times.now().since(s.due)
	if age >= s.goodFor {
		b.expire(s, at)
		return false
	}
	for oldest := &b.core.counts.oldest; ; {
		if known := oldest.Load(); int64(age) <= known || oldest.CompareAndSwap(known, int64(age)) {
			break
		}
	}
	if at%lookEvery == 0 && at > 0 && b.isCovered.CompareAndSwap(false, true) {
		time.AfterFunc(coverTime, func() { b.isCovered.Store(false) })
	}
	return true
}

// wait returns an ID as soon as a fetch has brought one.
func (b *buffer) wait(k *call) (int64, error) {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	for k.ctx.Err() == nil {
		f, err := b.restock()
		if err != nil {
			return 0, err
		}
		if f == nil {
			if id, isThere := b.take(); isThere {
				return id, nil
			}
			continue
		}
		select {
		case <-f.done:
			if f.err != nil {
				return 0, f.err
			}
		case <-k.ctx.Done():
		}
	}
	return 0, b.core.ended(k)
}

// restock makes the next stock the current one if the current one is empty. If there is none, it
// returns the fetch to wait for.
func (b *buffer) restock() (*fetch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.core.problem(); err != nil {
		return nil, err
	}
	old := b.current.Load()
	if old.taken.Load() < int64(len(old.ids)) {
		return nil, nil
	}
	if s := b.next; s != nil {
		b.next = nil
		s.openedAt = b.core.times.now().monotonic
		b.core.counts.ids.Add(uint64(old.handed()))
		// The next fetch is twice as large, unless this stock lasts longer or is dropped.
		b.size = 2 * len(s.ids)
		b.current.Store(s)
		return nil, nil
	}
	b.startFetch()
	return b.fetch, nil
}

// handed returns how many IDs were taken.
func (s *stock) handed() int64 {
	if taken := s.taken.Load(); taken < int64(len(s.ids)) {
		return taken
	}
	return int64(len(s.ids))
}

// refill starts the next fetch, because half of s is used: as large again if that went slowly.
func (b *buffer) refill(s *stock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil || b.fetch != nil || b.current.Load() != s || b.core.problem() != nil {
		return
	}
	if b.core.times.now().monotonic-s.openedAt > int64(s.goodFor)/quickPart {
		b.size = 2 * int(s.low+1)
	}
	b.startFetch()
}

// startFetch starts a fetch unless one is in flight. The lock must be held.
func (b *buffer) startFetch() {
	if b.fetch != nil {
		return
	}
	b.fetch = &fetch{done: make(chan struct{})}
	b.size = min(max(b.size, fetchMin), fetchMax)
	r := request{kind: kindNext, count: uint32(min(max(b.size, int(b.waiting.Load())), fetchMax)), isFetch: true,
		text: b.core.options.Source}
	go func() {
		k, cancel := b.core.call(b.core.ctx, r)
		defer cancel()
		b.finish(b.core.do(k))
	}()
}

// finish takes the result of a fetch.
func (b *buffer) finish(got *reply, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Its deadline is none of the calls that wait for it: they begin another one.
	if _, isLate := err.(*DeadlineError); !isLate {
		b.fetch.err = err
	}
	close(b.fetch.done)
	b.fetch = nil
	if err == nil {
		err = b.core.problem()
	}
	if got != nil && err != nil {
		b.core.counts.dropped.Add(uint64(len(got.ids)))
	} else if got != nil {
		b.next = &stock{ids: got.ids, low: int64(len(got.ids)-1) / 2, goodFor: got.goodFor, due: got.due}
	}
}

// expire drops a stock that is too old, when handed of its IDs were handed out.
func (b *buffer) expire(s *stock, handed int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current.Load() == s {
		b.size = 2 * int(handed)
		b.empty(handed)
	}
}

// empty drops the current stock. The lock must be held.
func (b *buffer) empty(handed int64) {
	s := b.current.Load()
	s.taken.Store(emptied)
	b.core.counts.ids.Add(uint64(handed))
	b.core.counts.dropped.Add(uint64(int64(len(s.ids)) - handed))
	b.current.Store(&stock{})
}

// drop drops all IDs.
func (b *buffer) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.empty(b.current.Load().handed())
	if b.next != nil {
		b.core.counts.dropped.Add(uint64(len(b.next.ids)))
		b.next = nil
	}
}

// handedOut returns how many IDs the client has handed out so far.
func (b *buffer) handedOut() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.core.counts.ids.Load() + uint64(b.current.Load().handed())
}
