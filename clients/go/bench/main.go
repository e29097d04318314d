// Command bench measures the client while a daemon fails, and its memory. The benchmarks beside it
// measure what an ID costs. clients/bench runs both.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	snowbank "packages.example.org/snowbank/clients/go"
)

var (
	background = context.Background()
	sum        int64
)

func main() {
	log.SetFlags(0)
	arguments := append(os.Args[1:], "", "", "")
	switch arguments[0] {
	case "longest":
		seconds, err := strconv.Atoi(arguments[2])
		check(err)
		longest(strings.Split(arguments[1], ","), time.Duration(seconds)*time.Second)
	case "clients":
		count, err := strconv.Atoi(arguments[2])
		check(err)
		clients(arguments[1], count)
	default:
		log.Fatal("usage: longest ADDRESSES SECONDS | clients ADDRESS COUNT")
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
