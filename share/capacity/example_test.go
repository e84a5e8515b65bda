package capacity_test

import (
	"fmt"
	"time"

	"fairshare/share/capacity"
)

func Example() {
	c := capacity.New(capacity.Options{Min: 2, Max: 64})
	fmt.Println("before any sample:", c.Slots())
	for i := range 1000 { // one request after another, each as fast as the others
		c.Sample(capacity.Sample{Now: int64(i) * int64(10*time.Millisecond), Path: 1, Network: uint64(i % 7),
			Took: 5 * time.Millisecond, Inside: 1, Known: true})
	}
	fmt.Println("within the bounds:", c.Slots() >= 2 && c.Slots() <= 64)
	// Output:
	// before any sample: 32
	// within the bounds: true
}
