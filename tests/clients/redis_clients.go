// Checks go-redis: redis_clients PORT PORT. The second daemon asks for a token. The test stops the
// first one when it reads READY. Fails by a panic.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const pipelined = 80_000

func check(holds bool, found ...any) {
	if !holds {
		panic(fmt.Sprint(found...))
	}
}

func number(id int64, err error) int64 {
	check(err == nil, err)
	return id
}

func main() {
	all := context.Background()
	options := redis.Options{Addr: "127.0.0.1:" + os.Args[1], ReadTimeout: 10 * time.Second, MaxRetries: -1}
	refused := options
	refused.Addr, refused.Password = "127.0.0.1:"+os.Args[2], "wrong"
	_, err := redis.NewClient(&refused).Pipelined(all, func(pipe redis.Pipeliner) error {
		for sent := 0; sent < 100; sent++ {
			pipe.Incr(all, "fast")
		}
		return nil
	})
	// After a refused HELLO it tries AUTH on the same connection.
	check(err != nil && strings.Contains(err.Error(), "WRONGPASS"), err)

	client := redis.NewClient(&options)
	for _, queue := range []redis.Pipeliner{client.Pipeline(), client.TxPipeline()} {
		replies := make([]*redis.IntCmd, pipelined)
		for sent := range replies {
			replies[sent] = queue.Incr(all, "fast")
		}
		_, err = queue.Exec(all)
		check(err == nil, err)
		last := int64(1) << 53
		for _, reply := range replies {
			check(last < reply.Val(), last, reply.Val())
			last = reply.Val()
		}
	}
	check(number(client.Incr(all, "fast:7").Result()) > 1<<53)
	check(!client.SetNX(all, "tickets", 0, 0).Val())
	check(number(client.Get(all, "tickets").Int64()) == 1000)
	check(number(client.IncrBy(all, "tickets", 0).Result()) == 1000)
	check(number(client.IncrBy(all, "tickets:7", 5).Result()) == 1005)

	fmt.Println("READY")
	fmt.Scanln()
	err = client.Incr(all, "fast").Err()
	check(err != nil, "a stopped daemon answered")
}
