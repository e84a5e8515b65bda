package limittest_test

import (
	"context"
	"fmt"
	"time"

	"fairshare"
	"fairshare/limittest"
)

// The model stores every request, so its answers are easy to verify.
func ExampleNewModel() {
	model := limittest.NewModel([]fairshare.Limit{
		{Name: "a minute", Resource: fairshare.Requests, N: 2, Window: time.Minute},
	})
	takes, tallies := []fairshare.Take{{Key: []byte("client"), Cost: 1}}, make([]fairshare.Tally, 1)
	for range 3 {
		if err := model.Take(context.Background(), time.Unix(1_800_000_000, 0), takes, tallies); err != nil {
			panic(err)
		}
		fmt.Println("over:", tallies[0].Over)
	}
	// Output:
	// over: false
	// over: false
	// over: true
}
