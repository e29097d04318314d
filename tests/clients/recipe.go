// Runs the recipe for Go of docs/clients.md, which the test puts beside this file:
// recipe PORT PORT. Prints each ID. The test kills a daemon meanwhile.
package main

import (
	"fmt"
	"log"
	"os"
	"sync"
	"time"
)

func main() {
	ids := NewIds("127.0.0.1:"+os.Args[1], "127.0.0.1:"+os.Args[2])
	draw := func(count int) {
		for i := 0; i < count; i++ {
			id, err := ids.Next()
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(id)
			time.Sleep(400 * time.Microsecond)
		}
	}
	draw(5_000)
	// At the end goroutines share the buffer.
	var both sync.WaitGroup
	for i := 0; i < 2; i++ {
		both.Add(1)
		go func() {
			defer both.Done()
			draw(500)
		}()
	}
	both.Wait()
}
