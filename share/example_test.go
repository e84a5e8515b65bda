package share_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/share"
)

func Example() {
	q := share.New(share.Options{Capacity: 1, Queue: -1}) // requests without a free slot are refused
	req := fairshare.Request{Time: time.Now(), Addr: netip.MustParseAddr("192.0.2.1"), Path: "/"}
	claim := q.Claim(&req)
	turn, err := q.Wait(context.Background(), &claim)
	if err != nil {
		panic(err)
	}
	// While the upstream processes it, there is no free slot.
	_, err = q.Wait(context.Background(), &claim)
	var busy *share.Busy
	fmt.Println(errors.As(err, &busy), busy.RetryAfter >= time.Second)
	turn.Done()
	turn, err = q.Wait(context.Background(), &claim)
	fmt.Println(turn != nil, err)
	// Output:
	// true true
	// true <nil>
}
