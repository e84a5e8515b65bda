package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// echoSite returns a site that answers with the headers that identify the client.
func echoSite(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "fairshare") &&
				!slices.Contains([]string{"Fairshare-Client", "Fairshare-Bot", "Fairshare-Bot-State",
					"Fairshare-Session-Ttl"}, name) {
				fmt.Fprintf(w, "strange header %s ", name)
			}
		}
		fmt.Fprint(w, r.Header["Fairshare-Client"], r.Header["Fairshare-Bot"], r.Header["Fairshare-Bot-State"],
			r.Header["Fairshare-Session-Ttl"])
	}))
	t.Cleanup(site.Close)
	return site
}

// holdingSite returns a site that sends to arrived when a request arrives,
// and answers "done" when it receives from leave.
func holdingSite(t *testing.T) (site *httptest.Server, arrived, leave chan bool) {
	arrived, leave = make(chan bool), make(chan bool)
	site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" { // the server asks for it at its start
			http.NotFound(w, r)
			return
		}
		arrived <- true
		<-leave
		io.WriteString(w, "done")
	}))
	t.Cleanup(func() {
		close(leave)
		site.Close()
	})
	return site, arrived, leave
}

// eventStreamSite returns a site of one event stream. It ends with the request.
func eventStreamSite(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, firstEvent)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(site.Close)
	return site
}

const firstEvent = "data: 1\n\n"

// openEventStream requests an event stream and reads its first event.
func openEventStream(t *testing.T, url string) io.Reader {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if _, err := io.ReadFull(resp.Body, make([]byte, len(firstEvent))); err != nil {
		t.Fatal(err)
	}
	return resp.Body
}
