package proxy

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const handshake = "GET /chat HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\n\n"

// chat accepts a websocket and echoes all messages, until either side ends it. After
// "bye." it ends the websocket itself. Then it sends the time to ended.
func chat(ended chan<- time.Time) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() {
			conn.Close()
			ended <- time.Now()
		}()
		fmt.Fprintf(rw,
			"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: %s\r\n\r\nhello", r.Header.Get("Sec-WebSocket-Key"))
		rw.Flush()
		word := make([]byte, 4)
		for {
			if _, err := io.ReadFull(rw, word); err != nil {
				return
			}
			conn.Write(word)
			if string(word) == "bye." {
				return
			}
		}
	}
}

// If one side ends, the other side is ended too. A pause does not end it.
func TestWebsocketLastsUntilOneSideEndsIt(t *testing.T) {
	for _, end := range []string{"the client", "the upstream", "the proxy"} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan time.Time, 1)
			s := newSite(t, chat(ended), Config{Timeout: time.Minute}, slots(1))
			v := s.visitor()
			// The first messages come together with the handshake.
			go v.send(handshake + "one.two.")
			resp := v.head()
			if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "x" ||
				len(resp.Header["Connection"]) != 1 || len(resp.Header["Upgrade"]) != 1 {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			said := make([]byte, len("helloone.two."))
			if _, err := io.ReadFull(v.r, said); err != nil || string(said) != "helloone.two." {
				t.Errorf("%q, %v", said, err)
			}
			time.Sleep(time.Hour)
			if status, _ := s.get("/"); status != 429 {
				t.Errorf("while a websocket is open: %d, want 429", status)
			}
			began := time.Now()
			switch end {
			case "the client":
				v.Close()
			case "the upstream":
				v.send("bye.")
				if rest, err := io.ReadAll(v.r); string(rest) != "bye." || err != nil {
					t.Errorf("the end: %q, %v", rest, err)
				}
			case "the proxy":
				s.proxy.Stop()
			}
			if at := <-ended; at != began {
				t.Errorf("%s ended it, and the upstream noticed it after %v", end, at.Sub(began))
			}
			synctest.Wait()
			if n := s.proxy.inside.Load(); n != 0 || len(s.proxy.live.ends) != 0 {
				t.Errorf("%s ended it: %d requests are in progress, %d live", end, n, len(s.proxy.live.ends))
			}
			if s.log.String() != "" {
				t.Errorf("logged %q", s.log.String())
			}
		})
	}
}

// If a client leaves before the upstream accepts the websocket, nothing remains in use.
func TestHangUpBeforeAWebsocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			chat(ended)(w, r)
		}, Config{})
		v := s.visitor()
		v.send(handshake)
		synctest.Wait()
		v.Close()
		<-ended
		synctest.Wait()
		if n := s.proxy.inside.Load(); n != 0 {
			t.Errorf("%d requests are in progress", n)
		}
	})
}
