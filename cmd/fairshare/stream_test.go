package main

import (
	"bufio"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// echoSocket is a websocket server (RFC 6455) that returns short texts.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	key := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") ||
		!strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		http.Error(w, fmt.Sprint("no websocket: ", r.Header), http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(key[:]))
	for rw.Flush() == nil {
		var head [6]byte // text or close, masked, shorter than 126 bytes
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return
		}
		text := make([]byte, head[1]&0x7f)
		if _, err := io.ReadFull(rw, text); err != nil {
			return
		}
		for i := range text {
			text[i] ^= head[2+i%4]
		}
		rw.Write(append([]byte{head[0], byte(len(text))}, text...))
	}
}

// Parts of a page arrive one by one through both nginx and fairshare.
func TestSandwichPassesStreams(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 2, nil)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	for _, page := range []string{"/stream.php", "/stream.php?events"} {
		req, err := http.NewRequest("GET", "https://"+s.public+page, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "shop.example"
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len("data: first\n\n"))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: first\n\n" {
			t.Errorf("%s: %q, %v", page, first, err)
		}
		goes := filepath.Join(s.root, "go")
		if err := os.WriteFile(goes, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: second\n\n" {
			t.Errorf("%s: then %q, %v", page, rest, err)
		}
		resp.Body.Close()
		os.Remove(goes)
	}
}

// Websockets pass both nginx and fairshare, and no other upgrade does.
func TestSandwichPassesWebsockets(t *testing.T) {
	t.Parallel()
	sockets := httptest.NewServer(http.HandlerFunc(echoSocket))
	defer sockets.Close()
	_, block, found := strings.Cut(deployed(t, nil, "nginx/inner.conf"), "\t# For your websocket server:\n")
	if !found {
		t.Fatal("inner.conf has no block for a websocket server")
	}
	block, _, _ = strings.Cut(block, "\n}")
	open := strings.ReplaceAll(strings.ReplaceAll(block, "# ", ""), "127.0.0.1:9000", sockets.Listener.Addr().String())
	s := startSandwich(t, 1, map[string]string{block: open})
	dial := func(upgrade string) (*http.Response, *tls.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := tls.Dial("tcp", s.public, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn,
			"GET /socket HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", upgrade)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, conn, r
	}
	resp, conn, r := dial("websocket")
	defer conn.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols ||
		resp.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s %v %s", resp.Status, resp.Header, body)
	}
	for range 3 {
		conn.Write([]byte("\x81\x85\x01\x02\x03\x04igohn")) // "hello", masked
		var frame [7]byte
		if _, err := io.ReadFull(r, frame[:]); err != nil || string(frame[:]) != "\x81\x05hello" {
			t.Fatalf("%q, %v", frame, err)
		}
	}
	for _, other := range []string{"h2c", "websocket, h2c", "TLS/1.0"} {
		resp, conn, _ := dial(other)
		conn.Close()
		if resp.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("Upgrade: %s: %s", other, resp.Status)
		}
	}
}
