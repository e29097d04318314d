// Command bench measures what an ID costs with the client, and with go-redis. clients/bench runs it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	snowbank "packages.example.org/snowbank/clients/go"
)

const (
	rounds    = 7
	stretches = 500
	// stretch is enough for the clock's grain, and so few that most stretches see no refill.
	stretch = 1_000
	calls   = 2_000
)

var (
	background = context.Background()
	sum        int64
)

func main() {
	log.SetFlags(0)
	arguments := append(os.Args[1:], "", "", "")
	switch arguments[0] {
	case "ids":
		ids(arguments[1], arguments[2])
	case "longest":
		seconds, err := strconv.Atoi(arguments[2])
		check(err)
		longest(strings.Split(arguments[1], ","), time.Duration(seconds)*time.Second)
	case "clients":
		count, err := strconv.Atoi(arguments[2])
		check(err)
		clients(arguments[1], count)
	default:
		log.Fatal("usage: ids ADDRESS REDIS | longest ADDRESSES SECONDS | clients ADDRESS COUNT")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func connect(options snowbank.Options) *snowbank.Client {
	client, err := snowbank.New(options)
	check(err)
	return client
}

func next(client *snowbank.Client) {
	id, err := client.Next(background)
	check(err)
	sum += id
}

// measure prints a row: whose it is, what was measured, and the time for each of count IDs.
func measure(handle, what string, count int, work func()) {
	began := time.Now()
	work()
	fmt.Printf("%s\t%s\t%f\n", handle, what, float64(time.Since(began).Nanoseconds())/float64(count))
}

func ids(address, redisAddress string) {
	client := connect(snowbank.Options{Endpoints: []string{address}})
	counter := redis.NewClient(&redis.Options{Addr: redisAddress})
	for round := 0; round < rounds; round++ {
		for i := 0; i < stretches; i++ {
			measure("Client", "buffer", stretch, func() {
				for i := 0; i < stretch; i++ {
					next(client)
				}
			})
		}
		measure("Client", "one", calls, func() {
			for i := 0; i < calls; i++ {
				batch(client, 1)
			}
		})
		measure("Client", "batch", calls*stretch, func() {
			for i := 0; i < calls; i++ {
				batch(client, stretch)
			}
		})
		measure("redis", "incr", calls, func() {
			for i := 0; i < calls; i++ {
				id, err := counter.Incr(background, "ids").Result()
				check(err)
				sum += id
			}
		})
		measure("redis", "incrby", calls*stretch, func() {
			for i := 0; i < calls; i++ {
				last, err := counter.IncrBy(background, "ids", stretch).Result()
				check(err)
				for id := last - stretch + 1; id <= last; id++ {
					sum += id
				}
			}
		})
	}
}

func batch(client *snowbank.Client, count int) {
	ids, err := client.Batch(background, count)
	check(err)
	for _, id := range ids {
		sum += id
	}
}

// longest draws 100 IDs each millisecond, and prints the longest Next in ms.
func longest(addresses []string, drawing time.Duration) {
	client := connect(snowbank.Options{Endpoints: addresses})
	next(client)
	fmt.Println("drawing")
	var most time.Duration
	for end := time.Now().Add(drawing); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i := 0; i < 100; i++ {
			began := time.Now()
			next(client)
			if took := time.Since(began); took > most {
				most = took
			}
		}
	}
	fmt.Println(most.Seconds() * 1e3)
}

// clients makes clients with a buffer each, and keeps them until it is killed.
func clients(address string, count int) {
	kept := make([]*snowbank.Client, count)
	for i := range kept {
		kept[i] = connect(snowbank.Options{Endpoints: []string{address}})
		next(kept[i])
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
	for _, client := range kept {
		check(client.Close())
	}
}
