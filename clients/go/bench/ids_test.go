package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	snowbank "packages.example.org/snowbank/clients/go"
)

const count = 1_000

// Kept from one run of a benchmark to the next, as an application keeps them.
var (
	client  = connect(snowbank.Options{Endpoints: []string{os.Getenv("BENCH_DAEMON")}})
	counter = redis.NewClient(&redis.Options{Addr: os.Getenv("BENCH_REDIS")})
)

// each reports the time for each ID of calls that get so many.
func each(b *testing.B, ids int, call func()) {
	for i := 0; i < b.N; i++ {
		call()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ids), "ns/ID")
}

// BenchmarkBuffer must not draw more IDs in a run than the buffer has: see clients/bench. A run
// begins within a burst, as those of the other clients do: Go collects garbage between two.
func BenchmarkBuffer(b *testing.B) {
	for i := 0; i < 100; i++ {
		next(client)
	}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		next(client)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/ID")
}

func BenchmarkOne(b *testing.B)   { each(b, 1, func() { batch(1) }) }
func BenchmarkBatch(b *testing.B) { each(b, count, func() { batch(count) }) }

func BenchmarkIncr(b *testing.B) {
	each(b, 1, func() {
		id, err := counter.Incr(background, "ids").Result()
		check(err)
		sum += id
	})
}

func BenchmarkIncrby(b *testing.B) {
	each(b, count, func() {
		last, err := counter.IncrBy(background, "ids", count).Result()
		check(err)
		for id := last - count + 1; id <= last; id++ {
			sum += id
		}
	})
}

func batch(count int) {
	ids, err := client.Batch(background, count)
	check(err)
	for _, id := range ids {
		sum += id
	}
}
