package cputime

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"fairshare"
)

// A request is one that the upstream works on: a fairshare.Metering. Its memory
// is used again after End.
type request struct {
	sampler *Sampler
	hash    uint64 // of the path

	began   int64 // ns of the Sampler's time; when Run ends, that moment
	ended   int64 // 0: in progress; under the Sampler's lock
	sampled bool  // the ledger has it; under the Sampler's lock
	told    func(time.Duration)
	spent   atomic.Int64 // ns that it was charged so far
	next    *request     // of the free ones

	// Of the ledger.
	end      int64   // as ended, once the ledger may know; 0: in progress
	own      int64   // ns in progress in this sample
	served   float64 // of own, ns in which the upstream is taken to have worked on it
	effect   float64 // of served, ns at the speed that the cores allow
	before   int64   // ns in progress before this sample
	foreseen float64 // cores
	whole    bool    // in progress during the whole sample, and charged for it
	share    float64 // ns charged by this sample
	known    *path
}

var _ fairshare.Metering = (*request)(nil)

// Begin notes that the upstream begins to work on a request for a path.
func (s *Sampler) Begin(path string) fairshare.Metering {
	hash := maphash.String(s.seed, path)
	now := s.now()
	s.mu.Lock()
	r := s.free
	if r != nil {
		s.free, r.next = r.next, nil
	} else {
		r = &request{sampler: s}
	}
	r.hash, r.began, r.ended, r.end = hash, now, 0, 0
	r.spent.Store(0)
	r.before, r.own = 0, 0
	r.sampled = s.running
	if r.sampled {
		s.begun = append(s.begun, r)
	}
	wake := s.idle && r.sampled
	s.idle = s.idle && !wake
	s.mu.Unlock()
	if wake {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return r
}

// Spent returns what the request was charged so far: up to the last sample, or
// its own time where nothing is sampled.
func (r *request) Spent() time.Duration {
	s := r.sampler
	s.mu.Lock()
	defer s.mu.Unlock()
	spent := r.spent.Load()
	if !r.sampled {
		spent += max(0, s.now()-r.began)
	}
	return time.Duration(spent)
}

// End notes that the upstream is done. told is called after the next sample, by
// the goroutine in Run; at once, where nothing is sampled.
func (r *request) End(told func(time.Duration)) {
	s := r.sampler
	now := s.now()
	s.mu.Lock()
	if r.sampled {
		r.ended, r.told = now, told
		s.ended = append(s.ended, r)
		s.mu.Unlock()
		return
	}
	spent := r.spent.Load() + max(0, now-r.began)
	s.release(r)
	s.mu.Unlock()
	told(time.Duration(spent))
}

// release keeps a request's memory for the next one, under s.mu.
func (s *Sampler) release(r *request) {
	r.told, r.known = nil, nil
	r.next, s.free = s.free, r
}
