// Package bench compares the client with redigo, in one run.
//
// It needs a daemon of a release build and a Redis, named by SNOWBANK_ENDPOINT and REDIS_ENDPOINT:
//
//	SNOWBANK_ENDPOINT=127.0.0.1:7660 REDIS_ENDPOINT=127.0.0.1:6379 go test -bench . -cpu 1,2
package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	snowbank "packages.example.org/snowbank/clients/go"
)

func connect(b *testing.B) *snowbank.Client {
	b.Helper()
	endpoint := os.Getenv("SNOWBANK_ENDPOINT")
	if endpoint == "" {
		b.Skip("SNOWBANK_ENDPOINT names no daemon")
	}
	client, err := snowbank.New(snowbank.Options{Endpoints: []string{endpoint}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}

func pool(b *testing.B) *redis.Pool {
	b.Helper()
	endpoint := os.Getenv("REDIS_ENDPOINT")
	if endpoint == "" {
		b.Skip("REDIS_ENDPOINT names no Redis")
	}
	pool := &redis.Pool{MaxIdle: 16, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", endpoint) }}
	b.Cleanup(func() { pool.Close() })
	return pool
}

func restart(b *testing.B) time.Time {
	b.ResetTimer()
	return time.Now()
}

func BenchmarkNext(b *testing.B) {
	client := connect(b)
	b.RunParallel(func(each *testing.PB) {
		for each.Next() {
			if _, err := client.Next(context.Background()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkBatch1(b *testing.B)    { benchmarkBatch(b, 1) }
func BenchmarkBatch1000(b *testing.B) { benchmarkBatch(b, 1000) }

func benchmarkBatch(b *testing.B, count int) {
	client := connect(b)
	began := restart(b)
	b.RunParallel(func(each *testing.PB) {
		for each.Next() {
			if _, err := client.Batch(context.Background(), count); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(b.N*count), "ns/ID")
}

func BenchmarkRedisINCR(b *testing.B)       { benchmarkRedis(b, 1) }
func BenchmarkRedisINCRBY1000(b *testing.B) { benchmarkRedis(b, 1000) }

func benchmarkRedis(b *testing.B, count int) {
	pool := pool(b)
	command, arguments := "INCRBY", []any{"ids", count}
	if count == 1 {
		command, arguments = "INCR", arguments[:1]
	}
	began := restart(b)
	b.RunParallel(func(each *testing.PB) {
		connection := pool.Get()
		defer connection.Close()
		for each.Next() {
			if _, err := redis.Int64(connection.Do(command, arguments...)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(b.N*count), "ns/ID")
}
