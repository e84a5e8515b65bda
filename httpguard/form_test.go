package httpguard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"fairshare"
	"fairshare/memlimit"
)

func TestKindOfForm(t *testing.T) {
	for _, c := range []struct {
		method, kind, coding string
		want                 formKind
		boundary             string
	}{
		{"POST", "application/x-www-form-urlencoded", "", urlencodedForm, ""},
		{"GET", "Application/X-WWW-Form-Urlencoded; Charset=UTF-8", "", urlencodedForm, ""},
		{"POST", "application/x-www-form-urlencoded; charset=ibm037", "", unclearForm, ""},
		{"POST", "application/x-www-form-urlencoded; charset=utf-8; charset=utf-16", "", unclearForm, ""},
		{"POST", "application/x-www-form-urlencoded", "gzip", unclearForm, ""},
		{"POST", "application/x-www-form-urlencoded", "identity", urlencodedForm, ""},
		{"POST", "application/x-www-form-urlencoded, text/plain", "", unclearForm, ""},
		{"POST", "text/plain; x=multipart/form-data", "", unclearForm, ""},
		{"POST", "multipart/form-data; boundary=----WebKitForm1", "", multipartForm, "----WebKitForm1"},
		{"POST", `multipart/form-data;boundary="a.b=c"`, "", multipartForm, "a.b=c"},
		{"POST", "multipart/form-data; charset=utf-8; boundary=X", "", multipartForm, "X"},
		{"POST", "multipart/form-data; boundary=X; boundary=Y", "", unclearForm, ""},
		{"POST", "multipart/form-data; boundary*0=X", "", unclearForm, ""},
		{"POST", "multipart/form-data", "", unclearForm, ""},
		{"POST", "multipart/mixed; boundary=X", "", unclearForm, ""},
		{"POST", "application/json", "", noForm, ""},
		{"POST", "", "", unclearForm, ""},
		{"PUT", "", "", noForm, ""},
	} {
		header := http.Header{"Content-Type": {c.kind}}
		if c.coding != "" {
			header.Set("Content-Encoding", c.coding)
		}
		if kind, boundary := kindOfForm(c.method, header); kind != c.want || boundary != c.boundary {
			t.Errorf("%s %q %q: %v, %q; want %v, %q", c.method, c.kind, c.coding, kind, boundary, c.want, c.boundary)
		}
	}
	two := http.Header{"Content-Type": {"text/plain", "application/x-www-form-urlencoded"}}
	if kind, _ := kindOfForm("POST", two); kind != unclearForm {
		t.Errorf("two types: %v", kind)
	}
}

func TestMultipartFields(t *testing.T) {
	const field = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
	part := func(header, content string) string {
		return "--B\r\n" + header + "\r\n\r\n" + content + "\r\n--B--\r\n"
	}
	for _, c := range []struct{ name, body, want string }{
		{"one", field + "--B--\r\n", "a=1"},
		{"without the last line's end", field + "--B--", "a=1"},
		{"two", field + part(`Content-Disposition: form-data; name=b`, "x y&=+%\n"), "a=1&b=x%20y%26%3D%2B%25%0A"},
		{"a file", field + part("Content-Disposition: form-data; name=\"b\"; filename=\"C:\\x.png\"\r\nContent-Type: image/png", "\x89PNG\r\n"), "a=1"},
		{"a file by two names", part(`Content-Disposition: form-data; name="b"; filename="x"; filename*=UTF-8''%41`, "1"), ""},
		{"no file chosen", part(`Content-Disposition: form-data; name="b"; filename=""`, ""), "b="},
		{"typed", part("content-disposition: form-data; name=\"b\"\r\nContent-Type: text/plain; charset=UTF-8", "1"), "b=1"},
		{"unnamed file with content", part(`Content-Disposition: form-data; name="b"; filename=""`, "1"), "?"},
		{"only filename*", part(`Content-Disposition: form-data; name="b"; filename*=UTF-8''x`, "1"), "?"},
		{"charset", part("Content-Disposition: form-data; name=\"b\"\r\nContent-Type: text/plain; charset=utf-16", "1"), "?"},
		{"nested", part("Content-Disposition: form-data; name=\"b\"\r\nContent-Type: multipart/mixed; boundary=C", "1"), "?"},
		{"quoted-printable", part("Content-Disposition: form-data; name=\"b\"\r\nContent-Transfer-Encoding: quoted-printable", "=41"), "?"},
		{"two dispositions", part("Content-Disposition: form-data; name=\"b\"\r\nContent-Disposition: form-data; name=\"c\"", "1"), "?"},
		{"two names", part(`Content-Disposition: form-data; name="b"; name="c"`, "1"), "?"},
		{"escaped quote", part(`Content-Disposition: form-data; name="b\"; filename=\"x"`, "1"), "?"},
		{"folded line", part("Content-Disposition: form-data;\r\n name=\"b\"", "1"), "?"},
		{"bare line feed", strings.ReplaceAll(field, "\r\n", "\n") + "--B--\n", "?"},
		{"preamble", "x\r\n" + field + "--B--\r\n", "?"},
		{"epilogue", field + "--B--\r\n" + field, "?"},
		{"no end", field, "?"},
		{"boundary in a value", part(`Content-Disposition: form-data; name="b"`, "x\n--B\n"), "?"},
		{"longer boundary", part(`Content-Disposition: form-data; name="b"`, "x\r\n--Bx"), "?"},
		{"no name", part(`Content-Disposition: form-data`, "1"), "?"},
		{"no header", "--B\r\n\r\n1\r\n--B--", "?"},
		{"empty", "", "?"},
	} {
		got, ok := formFields(multipartForm, "B", []byte(c.body))
		if !ok {
			got = "?"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestUrlencodedBodiesThatServersReadDifferently(t *testing.T) {
	for _, body := range []string{"a=%u0061", "a=%", "a=%4", "\r\na=1", "a=1\r\n", "\uFEFFa=1",
		"\xFE\xFF\x00a", "a=\x00"} {
		if _, ok := formFields(urlencodedForm, "", []byte(body)); ok {
			t.Errorf("%q is read", body)
		}
	}
}

// Fields that are known are those that net/url reads.
func FuzzUrlencodedFields(f *testing.F) {
	f.Add([]byte("action=heartbeat&x=%41+b&y"))
	f.Fuzz(func(t *testing.T, body []byte) {
		encoded, ok := formFields(urlencodedForm, "", body)
		if !ok {
			return
		}
		if encoded != string(body) {
			t.Fatalf("%q became %q", body, encoded)
		}
		if _, err := url.ParseQuery(encoded); err != nil && !strings.Contains(encoded, ";") {
			t.Errorf("%q: net/url: %v", body, err)
		}
	})
}

// Fields that are known are those that mime/multipart reads.
func FuzzMultipartFields(f *testing.F) {
	f.Add("B", []byte("--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n"))
	f.Add("B", []byte("--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"\"\r\n\r\n\r\n--B--"))
	f.Add("-", []byte("---\r\nContent-Disposition: form-data; name=a; filename=\"b\\c\"; filename*=UTF-8''x\r\nContent-Type: a/b\r\n\r\n1\r\n-----"))
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		kind, _ := kindOfForm("POST", http.Header{"Content-Type": {`multipart/form-data; boundary="` + boundary + `"`}})
		if kind != multipartForm {
			return
		}
		encoded, ok := formFields(kind, boundary, body)
		if !ok {
			return
		}
		form, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(1 << 20)
		if err != nil {
			t.Fatalf("%q: mime/multipart: %v", body, err)
		}
		got, err := url.ParseQuery(encoded)
		if err != nil || !maps.EqualFunc(got, url.Values(form.Value), slices.Equal) {
			t.Errorf("%q: %v (%v), mime/multipart: %v", body, got, err, form.Value)
		}
	})
}

// formServer serves a guard that blocks the action "login" and echoes all other bodies.
func formServer(t *testing.T, opts Options, http2 bool) *httptest.Server {
	t.Helper()
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "logins", Action: fairshare.Block,
		Match: fairshare.Match{Form: map[string][]string{"action": {"login"}}}}}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(&policy, limiter, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(Middleware(guard, opts)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %v %q ", r.ContentLength, err, r.Trailer.Get("Sum"))
			w.Write(body)
		})))
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func TestFormsAreJudgedAndPassedOnUnchanged(t *testing.T) {
	long := "pad=" + strings.Repeat("x", formAhead)
	const wanted = "action=heartbeat"
	for _, c := range []struct {
		name, kind, body string
		off, refused     bool
	}{
		{name: "another action", body: wanted},
		{name: "the action", body: "a=b&action=login", refused: true},
		{name: "a page's length", body: wanted + "&pad=" + strings.Repeat("x", formFree-len(wanted)-5)},
		{name: "the most", body: wanted + "&" + long[:formAhead-len(wanted)-1]},
		{name: "one more", body: wanted + "&" + long[:formAhead-len(wanted)], refused: true},
		{name: "padded", body: long + "&action=login", refused: true},
		{name: "a long body without a form", kind: "application/json", body: long},
		{name: "JSON", kind: "application/json", body: `{"action": "login"}`},
		{name: "without Options.Forms", body: wanted, off: true, refused: true},
		{name: "broken", body: "a=%", refused: true},
		{name: "empty"},
	} {
		for _, http2 := range []bool{false, true} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s http2=%v chunked=%v", c.name, http2, chunked), func(t *testing.T) {
					server := formServer(t, Options{Forms: !c.off}, http2)
					req, err := http.NewRequest("POST", server.URL, strings.NewReader(c.body))
					if err != nil {
						t.Fatal(err)
					}
					if chunked && c.body != "" {
						req.ContentLength = -1
						req.Trailer = http.Header{"Sum": {"42"}}
					}
					req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					if c.kind != "" {
						req.Header.Set("Content-Type", c.kind)
					}
					req.Header.Set("Expect", "100-continue")
					resp, err := server.Client().Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					got, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Fatal(err)
					}
					want := fmt.Sprintf("%d <nil> %q %s", req.ContentLength, req.Trailer.Get("Sum"), c.body)
					status := 200
					if c.refused {
						status = 403
					}
					if resp.StatusCode != status || !c.refused && string(got) != want {
						t.Errorf("status %d and %.60q, want %d and %.60q", resp.StatusCode, got, status, want)
					}
				})
			}
		}
	}
}

// A body that breaks off has unknown fields, and the handler gets the error.
func TestBrokenFormReachesTheHandlerBroken(t *testing.T) {
	budget := new(Handler)
	r := httptest.NewRequest("POST", "/", nil)
	for _, err := range []error{os.ErrDeadlineExceeded, io.ErrUnexpectedEOF, net.ErrClosed} {
		r.ContentLength = 100
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader("action=x"), iotest.ErrReader(err)))
		body := &formBody{ReadCloser: r.Body, budget: &budget.formBytes}
		if body.read(httptest.NewRecorder(), r) {
			t.Errorf("%v: the body is whole", err)
		}
		if got, failed := io.ReadAll(body); string(got) != "action=x" || !errors.Is(failed, err) {
			t.Errorf("%v: the handler reads %q, %v", err, got, failed)
		}
	}
}

// The memory of forms is bounded, and given back.
func TestFormsShareABudget(t *testing.T) {
	h := new(Handler)
	h.formBytes.Store(formBudget)
	const size = formFree + 10
	r := httptest.NewRequest("POST", "/", nil)
	for _, full := range []bool{true, false} {
		if !full {
			h.formBytes.Store(0)
		}
		text := strings.Repeat("x", size)
		body := &formBody{ReadCloser: io.NopCloser(strings.NewReader(text)), budget: &h.formBytes}
		r.ContentLength = size
		before := h.formBytes.Load()
		if whole := body.read(httptest.NewRecorder(), r); whole == full {
			t.Errorf("full %v: whole %v", full, whole)
		}
		if held := h.formBytes.Load() - before; full && held != 0 || !full && held != formAhead {
			t.Errorf("full %v: %d bytes are held", full, held)
		}
		if got, err := io.ReadAll(body); string(got) != text || err != nil {
			t.Errorf("full %v: read %d bytes, %v", full, len(got), err)
		}
		body.drop()
		if left := h.formBytes.Load() - before; left != 0 {
			t.Errorf("full %v: %d bytes are left", full, left)
		}
	}
}
