package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
)

// switched joins client and upstream once the upstream agreed to speak
// websocket. Either one's end is the end of both. stop ends the watch for the
// client's leaving, which net/http cannot see any more.
func (q *passage) switched(resp *http.Response, asked bool, stop func() bool) {
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	if ok {
		defer upstream.Close()
	}
	if up := resp.Header["Upgrade"]; !ok || !asked || len(up) != 1 || !strings.EqualFold(up[0], "websocket") || !listed(resp.Header["Connection"], "upgrade") {
		q.failed(errors.New("malformed HTTP response: it changes to a protocol that nobody asked for"))
		return
	}
	stop()
	back(q.w.Header(), resp.Header)
	conn, rw, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		q.done(nil)
		clear(q.w.Header())
		answer(q.w, q.r, http.StatusBadGateway, "This connection cannot become a websocket.")
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
	if err := agree(rw, q.w.Header()); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(conn, upstream)
		both()
	}()
	// What the client sent early is in the reader.
	if _, err := io.CopyN(upstream, rw, int64(rw.Reader.Buffered())); err == nil {
		io.Copy(upstream, conn)
	}
	both()
	<-done
}

// agree writes the head of the answer.
func agree(rw *bufio.ReadWriter, h http.Header) error {
	io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	if err := h.Write(rw); err != nil {
		return err
	}
	io.WriteString(rw, "\r\n")
	return rw.Flush()
}
