package replay

import (
	"container/heap"
	"context"
	"time"

	"fairshare"
)

// heldSlots are the requests that hold a slot of a concurrent limit. They hold it until
// the time at which, according to the log, their answer ended.
type heldSlots struct {
	guard *fairshare.Guard
	heap  heldHeap
}

// A held is one request in progress.
type held struct {
	until   int64 // Unix ns
	verdict fairshare.Verdict
}

func (h *heldSlots) hold(until int64, v fairshare.Verdict) {
	heap.Push(&h.heap, held{until, v})
}

// release frees the slots of all requests that have ended.
func (h *heldSlots) release(ctx context.Context, now int64) error {
	for len(h.heap) > 0 && h.heap[0].until <= now {
		ended := heap.Pop(&h.heap).(held)
		if err := h.guard.Settle(ctx, &ended.verdict, fairshare.Outcome{Time: time.Unix(0, ended.until)}); err != nil {
			return err
		}
	}
	return nil
}

// A heldHeap is a heap with the request that ends first at the top.
type heldHeap []held

func (h heldHeap) Len() int           { return len(h) }
func (h heldHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h heldHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heldHeap) Push(x any)        { *h = append(*h, x.(held)) }
func (h *heldHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = held{}
	*h = old[:len(old)-1]
	return last
}
