// goroutines: 50 of them call probed() 200 times each and once deep(), which makes the runtime move
// their stacks, amid garbage collections. Says ready, waits for a line, prints what was called.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var calls, total int64

//go:noinline
func probed(a int, b string, c int) int {
	var room [40]int // more than a function without a check of the stack may have
	for i := range room {
		room[i] = a + i
	}
	return room[c%40] + len(b)
}

//go:noinline
func deep(n int) int {
	var room [100]int
	room[n%100] = n
	if n == 0 {
		return room[0]
	}
	return deep(n-1) + room[n%100]
}

//go:noinline
func many(a, b, c, d, e, f, g, h, i, j int) int {
	var room [40]int
	room[a%40] = j
	return room[b%40] + c + d + e + f + g + h + i
}

func onStack(a, b, c, d, e, f, g, h, i int) int // on_stack_amd64.s

//go:noinline
func tiny(a int) int { return a + 1 }

func work(wait *sync.WaitGroup) {
	defer wait.Done()
	for i := 0; i < 200; i++ {
		atomic.AddInt64(&total, int64(probed(i, "abc", i)+tiny(i)))
		atomic.AddInt64(&calls, 1)
		if i%20 == 0 {
			runtime.Gosched()
		}
		if i == 100 {
			atomic.AddInt64(&total, int64(deep(1000)))
			runtime.GC()
		}
	}
}

func main() {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	if onStack(11, 12, 13, 14, 15, 16, 17, 18, 19) != 30 {
		os.Exit(1)
	}
	var wait sync.WaitGroup
	for w := 0; w < 50; w++ {
		wait.Add(1)
		go work(&wait)
	}
	wait.Wait()
	fmt.Println("calls", calls, "total", total)
}
