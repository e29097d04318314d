package snowbank

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand"
	"net"
	"sync"
	"time"
)

// environment is what a client takes from outside. Tests replace parts of it.
type environment struct {
	clock  clock
	lookup func(ctx context.Context, host string) ([]string, error)
}

// clock tells the time since the machine started, the time that it slept included.
type clock interface {
	now() time.Duration
	// newAlarm returns an alarm that calls ring.
	newAlarm(ring func()) alarm
}

// alarm calls its function once the clock has reached a time, also if the machine slept meanwhile.
type alarm interface {
	set(at time.Duration)
	stop()
}

func realEnvironment() *environment {
	return &environment{clock: bootClock{}, lookup: net.DefaultResolver.LookupHost}
}

// dice makes random numbers that differ from process to process, which the package's own source of
// Go 1.19 does not.
type dice struct {
	mu     sync.Mutex
	source *rand.Rand
}

func newDice() *dice {
	var seed [8]byte
	// Without randomness the time has to do: it only spreads reconnects.
	if _, err := cryptorand.Read(seed[:]); err != nil {
		binary.LittleEndian.PutUint64(seed[:], uint64(time.Now().UnixNano()))
	}
	return &dice{source: rand.New(rand.NewSource(int64(binary.LittleEndian.Uint64(seed[:]))))}
}

// upTo returns a random time below limit.
func (d *dice) upTo(limit time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.source.Float64() * float64(limit))
}

func (d *dice) shuffle(texts []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.source.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
}
