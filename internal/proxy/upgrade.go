package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
)

// switched connects client and upstream after the upstream has accepted a websocket.
// If one of them ends, both end. The watch for the client's leaving ends: net/http can no
// longer notice that.
func (q *exchange) switched(resp *http.Response, requested bool) {
	q.shared = true
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	if ok {
		defer upstream.Close()
	}
	if up := resp.Header["Upgrade"]; !ok || !requested || len(up) != 1 || !strings.EqualFold(up[0], "websocket") ||
		!listed(resp.Header["Connection"], "upgrade") {
		q.failed(errors.New("malformed HTTP response: it changes to a protocol that was not requested"))
		return
	}
	q.unwatchClient()
	copyAnswerHeader(q.w.Header(), resp.Header)
	conn, rw, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		q.finish(nil)
		clear(q.w.Header())
		answer(q.w, q.r, http.StatusBadGateway, "This connection does not support websockets.")
		return
	}
	defer conn.Close()
	both := func() {
		conn.Close()
		upstream.Close()
	}
	q.proxy.live.add(&q.patience, func() {
		conn.SetDeadline(longAgo) // closing may wait for the client, with TLS
		upstream.Close()
	})
	defer q.proxy.live.remove(&q.patience)
	if err := writeSwitch(rw, q.w.Header()); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(conn, upstream)
		both()
	}()
	// The reader may already hold data of the client.
	if _, err := io.CopyN(upstream, rw, int64(rw.Reader.Buffered())); err == nil {
		io.Copy(upstream, conn)
	}
	both()
	<-done
}

// writeSwitch writes the head of the answer.
func writeSwitch(rw *bufio.ReadWriter, h http.Header) error {
	io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	if err := h.Write(rw); err != nil {
		return err
	}
	io.WriteString(rw, "\r\n")
	return rw.Flush()
}
