//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
)

// The events of a tab become records: redirects, refusals, a waiting room, failures, and requests that
// the browser gave up when it left the page.
func TestWatchRecordsRequests(t *testing.T) {
	t.Parallel()
	sent := func(id, target string, kind network.ResourceType) *network.EventRequestWillBeSent {
		return &network.EventRequestWillBeSent{RequestID: network.RequestID(id), Type: kind,
			Request: &network.Request{URL: "http://" + siteHost + target}}
	}
	got := func(id string, status int64, header network.Headers) *network.EventResponseReceived {
		timing := &network.ResourceTiming{ConnectStart: -1, SendStart: 10, ReceiveHeadersEnd: 6010}
		return &network.EventResponseReceived{RequestID: network.RequestID(id),
			Response: &network.Response{Status: status, Headers: header, Timing: timing}}
	}
	of := func(loader string, event *network.EventRequestWillBeSent) *network.EventRequestWillBeSent {
		event.LoaderID, event.FrameID = cdp.LoaderID(loader), "main"
		return event
	}
	shown := func(loader string) *network.EventResponseReceived {
		return &network.EventResponseReceived{RequestID: network.RequestID(loader), LoaderID: cdp.LoaderID(loader),
			FrameID: "main", Type: network.ResourceTypeDocument, Response: &network.Response{Status: 200,
				Timing: &network.ResourceTiming{ConnectStart: -1, ReceiveHeadersEnd: 1000}}}
	}
	other := &network.EventRequestWillBeSent{RequestID: "1", Request: &network.Request{URL: "http://x.example/"}}
	const page, call, part = network.ResourceTypeDocument, network.ResourceTypeXHR, network.ResourceTypeScript
	for _, test := range []struct {
		name   string
		events []any
		late   time.Duration // how long ago the open requests began, when the run ends
		want   []record
	}{
		{"slow page", []any{sent("1", "/a", page), got("1", 200, nil)}, 0,
			[]record{{target: "/a", status: 200, wait: 6 * time.Second, page: true, harm: "waited 6s"}}},
		{"refused call", []any{sent("1", "/a?b=c", call), got("1", 429, nil)}, 0,
			[]record{{target: "/a?b=c", status: 429, wait: 6 * time.Second, page: true, harm: "refused with 429"}}},
		{"waiting room", []any{sent("1", "/a", page), got("1", 503, network.Headers{"refresh": "3"})}, 0,
			[]record{{target: "/a", status: 503, wait: 6 * time.Second, page: true}}},
		{"aborted", []any{sent("1", "/a", part),
			&network.EventLoadingFailed{RequestID: "1", ErrorText: "net::ERR_ABORTED"}}, 0, nil},
		{"other site", []any{other, got("1", 403, nil)}, 0, nil},
		{"left soon", []any{sent("1", "/a", call)}, time.Second, nil},
		{"left after a long wait", []any{sent("1", "/a", call)}, 7 * time.Second,
			[]record{{target: "/a", wait: 7 * time.Second, page: true, harm: "no answer in 7s"}}},
		{"the page before the next one", []any{of("A", sent("A", "/a", page)), shown("A"),
			of("A", sent("1", "/call", call)), of("B", sent("B", "/b", page)), of("A", sent("2", "/call", call)),
			shown("B"),
			of("B", sent("3", "/mine", call))},
			7 * time.Second, []record{{target: "/a", status: 200, wait: time.Second, page: true},
				{target: "/b", status: 200, wait: time.Second, page: true},
				{target: "/mine", wait: 7 * time.Second, page: true, harm: "no answer in 7s"}}},
	} {
		c := &crowd{}
		w := &watch{person: &person{name: "editor 1", crowd: c}, open: make(map[network.RequestID]opened)}
		for _, event := range test.events {
			w.event(event)
		}
		for id, o := range w.open {
			o.began = o.began.Add(-test.late)
			w.open[id] = o
		}
		w.finish()
		if len(c.records) != len(test.want) {
			t.Errorf("%s: records %+v", test.name, c.records)
			continue
		}
		for i, want := range test.want {
			want.person = "editor 1"
			r := c.records[i]
			r.wait = r.wait.Round(time.Second)
			if r != want {
				t.Errorf("%s: record %+v, want %+v", test.name, r, want)
			}
		}
	}
}
