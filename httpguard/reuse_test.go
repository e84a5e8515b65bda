package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// keepNothing answers as a handler that lets the memory of its request be used again.
func keepNothing(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
	httpguard.NothingKept(w)
}

// A request of a client uses the memory of an earlier one, which something may still refer to, only if that shows
// nothing of either to the other.
func TestMemoryIsUsedAgain(t *testing.T) {
	serve := func(h http.Handler, w http.ResponseWriter, client int) {
		r := httptest.NewRequest("GET", fmt.Sprint("/", client), nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", client)
		h.ServeHTTP(w, r)
	}
	errors := limit("errors", fairshare.Limit{Resource: fairshare.Errors, N: 10, Window: time.Hour})

	t.Run("limits of what is known later", func(t *testing.T) {
		h := httpguard.New(newGuard(t, errors), httpguard.Options{Reuse: true}, http.HandlerFunc(keepNothing))
		w := &wholeWriter{ResponseRecorder: httptest.NewRecorder()}
		if serve(h, w, 1); !w.reused {
			t.Error("the memory of the request is not used again")
		}
	})
	t.Run("a writer that is used too late", func(t *testing.T) {
		var late http.ResponseWriter
		h := httpguard.New(newGuard(t), httpguard.Options{Reuse: true},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if late == nil {
					late = w
				} else {
					fmt.Fprint(late, "late")
				}
				keepNothing(w, r)
			}))
		for i := range 20 {
			w := httptest.NewRecorder()
			if serve(h, w, i); i > 0 && w.Body.Len() > 0 {
				t.Fatal("the answer to another request has the late text")
			}
		}
	})
	t.Run("a guard inside", func(t *testing.T) {
		var kept *httpguard.Exchange
		inside := httpguard.New(newGuard(t), httpguard.Options{Context: true},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keepNothing(w, r)
				if kept == nil {
					kept = httpguard.From(r.Context())
				} else {
					kept.ReportCost(777)
				}
			}))
		var costs []int64
		h := httpguard.New(newGuard(t), httpguard.Options{Reuse: true,
			Answered: func(a *httpguard.Access) { costs = append(costs, a.Cost) }}, inside)
		for i := range 20 {
			serve(h, &wholeWriter{ResponseRecorder: httptest.NewRecorder()}, i)
		}
		if slices.Max(costs) >= 0 {
			t.Errorf("costs %d: a late report reached another request", costs)
		}
	})
	t.Run("a context that a server keeps", func(t *testing.T) {
		type key struct{}
		h := httpguard.New(newGuard(t), httpguard.Options{Reuse: true}, nil)
		var kept []context.Context
		for i := range 20 {
			r := httptest.NewRequest("GET", "/", nil)
			r = r.WithContext(context.WithValue(r.Context(), key{}, i))
			h.Do(&wholeWriter{ResponseRecorder: httptest.NewRecorder()}, r,
				func(w http.ResponseWriter, r *http.Request) error {
					kept = append(kept, r.Context())
					keepNothing(w, r)
					return nil
				})
			for i, ctx := range kept {
				if ctx.Value(key{}) != i {
					t.Fatalf("the context of request %d has the value %v", i, ctx.Value(key{}))
				}
			}
		}
	})
}
