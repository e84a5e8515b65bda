package outbound

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare/internal/httpfield"
)

// A script is a connection to an upstream that sends given bytes after the first write, in pieces, and then
// closes the connection.
type script struct {
	answer  []byte
	piece   int
	written chan struct{}
	once    sync.Once

	mu     sync.Mutex
	sent   []byte
	closed chan struct{}
	ending sync.Once
}

func newScript(answer string, piece int) *script {
	return &script{answer: []byte(answer), piece: piece, written: make(chan struct{}), closed: make(chan struct{})}
}

func (s *script) Read(b []byte) (int, error) {
	select {
	case <-s.written:
	case <-s.closed:
		return 0, net.ErrClosed
	}
	if len(s.answer) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), s.piece)], s.answer)
	s.answer = s.answer[n:]
	return n, nil
}

func (s *script) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.sent = append(s.sent, b...)
	s.mu.Unlock()
	s.once.Do(func() { close(s.written) })
	return len(b), nil
}

func (s *script) Close() error {
	s.ending.Do(func() { close(s.closed) })
	return nil
}

func (s *script) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// An outcome is what a caller gets of an answer.
type outcome struct {
	failed   bool // no head, or a broken body
	status   int
	header   http.Header
	length   int64
	body     string
	trailer  http.Header
	interims []int
}

var errInterim = errors.New("too many")

// byPool reads an answer with a Pool, and also returns the error and whether the connection may be used again. whole
// lets the answer be left whole, if it can be.
func byPool(method, answer string, piece int, whole bool) (o outcome, err error, idle bool) {
	conn := newScript(answer, piece)
	p := NewPool(Options{Host: "upstream", Timeout: time.Minute, IdleTime: time.Minute,
		Special: func(name string) bool { return name == "Server" },
		Dial:    func(context.Context) (net.Conn, error) { return conn, nil }})
	defer p.CloseIdle()
	c := p.Call()
	defer c.Release()
	header := http.Header{}
	hint := func(code int, _ textproto.MIMEHeader) error {
		if o.interims = append(o.interims, code); len(o.interims) > 8 {
			return errInterim
		}
		return nil
	}
	resp, err := c.Do(&Request{Method: method, Target: "/", Answer: header, Hint: hint, Whole: whole})
	var a Whole
	isWhole := err == nil && c.Whole(&a)
	if isWhole {
		a.Fields, a.Body = bytes.Clone(a.Fields), bytes.Clone(a.Body)
		if resp.Header != nil || len(header) > 0 || !whole {
			return o, fmt.Errorf("a whole answer has the header %v, %v", resp.Header, header), false
		}
		c.Unfold()
	}
	if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
		if len(header) > 0 {
			return o, fmt.Errorf("an answer that is not one gives the header %v", header), false
		}
	} else if len(header) > 0 {
		if !reflect.DeepEqual(header, resp.Header) {
			return o, fmt.Errorf("%v is not %v", header, resp.Header), false
		}
		for name := range header {
			if httpfield.IsOfConnection(name) && name != "Connection" {
				return o, fmt.Errorf("%s is a field of the connection", name), false
			}
		}
	}
	if err != nil {
		return outcome{failed: true}, err, false
	}
	err = o.fill(resp)
	if isWhole {
		text := strings.NewReader(string(a.Fields) + "\r\n")
		lines, err := textproto.NewReader(bufio.NewReader(text)).ReadMIMEHeader()
		if err != nil || !reflect.DeepEqual(http.Header(lines), header) && len(lines)+len(header) > 0 ||
			string(a.Body) != o.body || a.Status != o.status || a.Dated != (header["Date"] != nil) ||
			a.ContentType != header.Get("Content-Type") || !slices.Equal(a.SetCookie, header["Set-Cookie"]) ||
			header["Server"] != nil || header["Connection"] != nil {
			return o, fmt.Errorf("the whole answer %+v, %q is not %v, %v", a, a.Fields, header, err), false
		}
	}
	return o, err, len(p.idle) == 1
}

// byTransport reads it with net/http.
func byTransport(method, answer string, piece int) (o outcome, err error) {
	conn := newScript(answer, piece)
	t := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: headBytes,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer t.CloseIdleConnections()
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if o.interims = append(o.interims, code); len(o.interims) > 8 {
				return errInterim
			}
			return nil
		}})
	r, _ := http.NewRequestWithContext(ctx, method, "http://upstream/", nil)
	resp, err := t.RoundTrip(r)
	if err != nil {
		return outcome{failed: true}, err
	}
	return o, o.fill(resp)
}

func (o *outcome) fill(resp *http.Response) error {
	defer resp.Body.Close()
	o.status, o.header, o.length = resp.StatusCode, resp.Header.Clone(), resp.ContentLength
	if httpfield.HasToken(strings.Join(o.header["Connection"], ","), "close") {
		delete(o.header, "Connection") // as net/http does, although it may name more fields
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	for name := range o.header {
		if httpfield.IsOfConnection(name) {
			delete(o.header, name)
		}
	}
	body, err := io.ReadAll(resp.Body)
	o.body, o.failed = string(body), err != nil
	if len(resp.Trailer) > 0 && err == nil {
		o.trailer = resp.Trailer.Clone()
	}
	return err
}

// refusedOnPurpose reports whether net/http accepts an answer that a Pool does not: its end is ambiguous.
func refusedOnPurpose(answer string) bool {
	lower := strings.ToLower(answer)
	lengths := strings.Count(lower, "content-length")
	return lengths > 1 || lengths > 0 && strings.Contains(lower, "transfer-encoding") ||
		strings.Count(lower, "\n") > strings.Count(lower, "\r\n") // a trailer with bare line feeds
}

func compare(t *testing.T, method, answer string, piece int) {
	t.Helper()
	late := time.AfterFunc(5*time.Second, func() { panic(fmt.Sprintf("%s %q %d hangs", method, answer, piece)) })
	defer late.Stop()
	got, err, idle := byPool(method, answer, piece, false)
	whole, wholeErr, wholeIdle := byPool(method, answer, piece, true)
	if !reflect.DeepEqual(got, whole) || (err == nil) != (wholeErr == nil) || idle != wholeIdle {
		t.Errorf("%s, %q in pieces of %d: whole %+v, %v, in parts %+v, %v", method, answer, piece, whole, wholeErr, got,
			err)
	}
	want, wantErr := byTransport(method, answer, piece)
	if got.failed {
		if !want.failed && !refusedOnPurpose(answer) {
			t.Errorf("%s, %q in pieces of %d: %v, net/http accepts it: %+v", method, answer, piece, err, want)
		}
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s, %q in pieces of %d:\ngot  %+v, %v\nwant %+v, %v", method, answer, piece, got, err, want, wantErr)
	}
	if _, rest, _ := strings.Cut(answer, "\r\n\r\n"); idle && piece > len(answer) && got.status >= 200 &&
		!strings.HasSuffix(rest, got.body) && len(got.interims) == 0 && got.trailer == nil &&
		!strings.Contains(strings.ToLower(answer), "chunked") {
		t.Errorf("%s, %q: the connection is used again after %q", method, answer, rest)
	}
}

// answers are the beginnings of tests and of the fuzzer.
var answers = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-a: 1\r\nx-A: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more than announced",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\nETag: \"a\"\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n000\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: X-Late, x-never\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\nX-Late: 2\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding:\tchunked \r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
	"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nx",
	"HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
	"HTTP/1.1 200 OK\r\nX-A: b\n\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\n X-A: b\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX-A: b\x00c\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX-A: \xc3\xa4\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX A: b\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"http/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1  200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 20 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 2000 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 099 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 999 odd\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 abc OK\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX-A: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 103 Early Hints\r\n\r\n",
	strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20) + "HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("a", 5000) + "\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("a", headBytes) + "\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000),
	"HTTP/1.1 200 OK\r\nContent-Le",
	"HTTP/1.1 200 OK",
	"",
	"\r\n\r\n",
	"\x16\x03\x01\x00\x00",
	"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, x\r\nX: 1\r\nContent-Length: 1\r\n\r\nx",
}

// A Pool returns the same as net/http, or refuses.
func TestAnswersAreReadAsByNetHTTP(t *testing.T) {
	for _, answer := range answers {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			for _, piece := range []int{1 << 20, 7, 1} {
				if piece == 1 && len(answer) > 10_000 {
					continue
				}
				compare(t, method, answer, piece)
			}
		}
	}
}

// Answers whose end is ambiguous are refused, and no connection is used again after an answer that is not a plain one.
func TestAmbiguousAnswers(t *testing.T) {
	for _, test := range []struct {
		answer     string
		fails, use bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", false, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", false, true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n", false, true},
		{"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("a", 5000) + "\r\nContent-Length: 1\r\n\r\nx", false, true},
		{"HTTP/1.1 204 No Content\r\n\r\n", false, true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny", false, false},
		{"HTTP/1.1 204 No Content\r\n\r\nx", false, false},
		{"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 1\r\n\r\nx", false, false},
		{"HTTP/1.1 200 OK\r\n\r\nx", false, false},
		{"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", false, false},
		{"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\nx", false, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n1\r\nx\r\n0\r\n\r\n", true, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", true, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx", true, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", true, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", true, false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
			strings.Repeat("a: b\r\n", 1000) + "\r\n", true, false},
	} {
		got, err, idle := byPool("GET", test.answer, 1<<20, false)
		if got.failed != test.fails || !test.fails && got.body != "x" && got.status != 204 {
			t.Errorf("%q: %+v, %v", test.answer, got, err)
		}
		if idle != test.use {
			t.Errorf("%q: the connection is used again: %v, want %v", test.answer, idle, test.use)
		}
	}
}

func FuzzAnswers(f *testing.F) {
	for i, answer := range answers {
		if len(answer) < 10_000 {
			f.Add(i%3, answer, 1+i%20)
		}
	}
	f.Fuzz(func(t *testing.T, method int, answer string, piece int) {
		if len(answer) > 10_000 {
			return
		}
		compare(t, []string{"GET", "HEAD", "POST"}[uint(method)%3], answer, 1+int(uint(piece)%100))
	})
}

// What is sent is what net/http sends, apart from the order of the fields.
func TestRequestsAreWrittenAsByNetHTTP(t *testing.T) {
	for _, r := range []Request{
		{Method: "GET", Target: "/a%20b?c=d&e", Host: "site.example"},
		{Method: "GET", Target: "/", Host: ""},
		{Method: "OPTIONS", Target: "*", Host: "a"},
		{Method: "POST", Target: "/", Host: "a"},
		{Method: "PATCH", Target: "/", Host: "a"},
		{Method: "DELETE", Target: "/", Host: "a"},
		{Method: "HEAD", Target: "/", Host: "a:8080"},
		{Method: "POST", Target: "/", Host: "a", Body: []byte("hello")},
		{Method: "GET", Target: "/", Host: "a", Body: []byte("hello")},
		{Method: "GET", Target: "/", Host: "a", Header: http.Header{"User-Agent": nil,
			"Accept": {"*/*", "b"}, "X": {" c\t"},
			"Y": {""}, "Content-Length": {"7"}, "Transfer-Encoding": {"chunked"}, "Host": {"b"}, "Trailer": {"a"},
			"Connection": {"x"}}},
		{Method: "GET", Target: "/", Host: "a", Header: http.Header{"User-Agent": {"one", "two"}}},
		{Method: "GET", Target: "/", Host: "a", Header: http.Header{"User-Agent": {""}}},
		{Method: "GET", Target: "/", Host: "a", Header: http.Header{"X": {"1"}},
			Fields: []Field{{"Y", " 2 "}, {"Connection", "z"}, {"Z", ""}}},
	} {
		const answer = "HTTP/1.1 204 No Content\r\n\r\n"
		var conns [2]*script
		for i := range conns {
			conns[i] = newScript(answer, 100)
		}
		p := NewPool(Options{Host: "upstream", Timeout: time.Minute, IdleTime: time.Minute,
			Dial: func(context.Context) (net.Conn, error) { return conns[0], nil }})
		c := p.Call()
		if _, err := c.Do(&r); err != nil {
			t.Errorf("%+v: %v", r, err)
			continue
		}
		c.Release()
		p.CloseIdle()
		tr := &http.Transport{DisableCompression: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return conns[1], nil }}
		req, _ := http.NewRequest(r.Method, "http://upstream/", nil)
		if len(r.Body) > 0 {
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
		}
		req.URL.Path, req.URL.Opaque, req.Host = "", r.Target, r.Host
		req.Header = r.Header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		for _, f := range r.Fields {
			req.Header[f.Name] = []string{f.Value}
		}
		if _, ok := req.Header["User-Agent"]; !ok {
			req.Header["User-Agent"] = nil
		}
		if _, err := tr.RoundTrip(req); err != nil {
			t.Errorf("%+v: %v", r, err)
			continue
		}
		tr.CloseIdleConnections()
		if got, want := sortedRequest(conns[0].sent), sortedRequest(conns[1].sent); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func sortedRequest(sent []byte) string {
	head, body, _ := strings.Cut(string(sent), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	sortStrings(lines[1:])
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// Nothing is sent of a request that could be read as something else.
func TestUnfitRequestsAreNotSent(t *testing.T) {
	p := NewPool(Options{Host: "upstream", Timeout: time.Minute, IdleTime: time.Minute,
		Dial: func(context.Context) (net.Conn, error) { panic("a connection is made") }})
	for _, r := range []Request{
		{Method: "GET", Target: "/ HTTP/1.1\r\nX: y"},
		{Method: "GET", Target: "/a b"},
		{Method: "GET", Target: "/\xff"},
		{Method: "GET", Target: ""},
		{Method: "G T", Target: "/"},
		{Method: "", Target: "/"},
		{Method: "GET", Target: "/", Host: "a\r\nX: y"},
		{Method: "GET", Target: "/", Header: http.Header{"A": {"b\r\nX: y"}}},
		{Method: "GET", Target: "/", Header: http.Header{"A": {"b\nX: y"}}},
		{Method: "GET", Target: "/", Header: http.Header{"A": {"b\x00"}}},
		{Method: "GET", Target: "/", Header: http.Header{"A b": {"c"}}},
		{Method: "GET", Target: "/", Header: http.Header{"": {"c"}}},
		{Method: "GET", Target: "/", Header: http.Header{"A:": {"c"}}},
		{Method: "GET", Target: "/", Fields: []Field{{"A", "b\r\nX: y"}}},
		{Method: "GET", Target: "/", Fields: []Field{{"A b", "c"}}},
	} {
		c := p.Call()
		if _, err := c.Do(&r); err != ErrUnfit {
			t.Errorf("%+v: %v", r, err)
		}
		c.Release()
	}
}
