package cputime

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"fairshare/httpguard"
)

// A request is a httpguard.Metering of a request in progress. Its memory is reused after End.
type request struct {
	sampler *Sampler
	hash    uint64 // of the path

	began   int64 // ns of the Sampler's time; when Run ends, that moment
	ended   int64 // 0: in progress; under the Sampler's lock
	sampled bool  // the ledger has it; under the Sampler's lock
	report  func(time.Duration)
	spent   atomic.Int64 // ns charged so far
	next    *request     // next free request

	// Used by the ledger.
	end      int64   // ended, copied for the ledger; 0: in progress
	own      int64   // ns in progress in this sample
	served   float64 // part of own in which the upstream probably processed it
	effect   float64 // served, reduced to the speed that the cores allow
	before   int64   // ns in progress before this sample
	foreseen float64 // cores
	whole    bool    // in progress during the whole sample, and charged for it
	share    float64 // ns charged by this sample
	known    *path
}

var _ httpguard.Metering = (*request)(nil)

// Begin records that the upstream begins a request for a path.
func (s *Sampler) Begin(path string) httpguard.Metering {
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

// Spent returns the charge so far: up to the last sample, or the request's own time without
// samples.
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

// End records that the upstream has finished. The goroutine in Run calls report after the next
// sample; without samples End calls it at once.
func (r *request) End(report func(time.Duration)) {
	s := r.sampler
	now := s.now()
	s.mu.Lock()
	if r.sampled {
		r.ended, r.report = now, report
		s.ended = append(s.ended, r)
		s.mu.Unlock()
		return
	}
	spent := r.spent.Load() + max(0, now-r.began)
	s.release(r)
	s.mu.Unlock()
	report(time.Duration(spent))
}

// release frees a request's memory for the next one, under s.mu.
func (s *Sampler) release(r *request) {
	r.report, r.known = nil, nil
	r.next, s.free = s.free, r
}
