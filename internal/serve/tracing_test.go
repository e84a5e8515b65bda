package serve

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/internal/livepolicy"
	"fairshare/internal/otlp"
)

const (
	sampledParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

type trustOf string

func (p trustOf) TrustsPeer(peer string) bool { return peer == string(p) }
func (p trustOf) Secure(_ string, h clientaddr.Header) bool {
	return len(h.Values("X-Forwarded-Proto")) > 0
}

// Only a trusted proxy chooses the trace and whether it is recorded. The headers of other peers are removed.
func TestTraceparentIsBelievedFromTrustedProxiesOnly(t *testing.T) {
	const proxy, client = "10.0.0.1:1", "192.0.2.1:1"
	none := &tracing{parents: true}
	all := &tracing{parents: true, always: true}
	for name, c := range map[string]struct {
		tracing *tracing
		peer    string
		parents []string
		want    string // "": no span; new: of a new trace; child: of the proxy's
		passes  string // the header without a span
	}{
		"proxy samples":                 {none, proxy, []string{sampledParent}, "child", ""},
		"proxy does not sample":         {all, proxy, []string{unsampledParent}, "", unsampledParent},
		"proxy sends none, none chosen": {none, proxy, nil, "", ""},
		"proxy sends none, all chosen":  {all, proxy, nil, "new", ""},
		"proxy sends an invalid one":    {none, proxy, []string{"00-x"}, "", ""},
		"proxy sends two":               {none, proxy, []string{sampledParent, sampledParent}, "", ""},
		"proxy is not asked":            {&tracing{}, proxy, []string{sampledParent}, "", ""},
		"client samples":                {none, client, []string{sampledParent}, "", ""},
		"client samples, all chosen":    {all, client, []string{sampledParent}, "new", ""},
		"client does not, all chosen":   {all, client, []string{unsampledParent}, "new", ""},
		"client sends the state alone":  {none, client, nil, "", ""},
		"client sends a wrong one":      {none, client, []string{"nonsense"}, "", ""},
		"client sends none, all chosen": {all, client, nil, "new", ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		r.Header["Tracestate"] = []string{"a=1", "b=2"}
		if c.parents != nil {
			r.Header["Traceparent"] = c.parents
		}
		begun := c.tracing.begin(r, trustOf(proxy))
		span, sent := spanOf(begun), begun.Header.Get("Traceparent")
		context, valid := otlp.ParseContext(sent)
		parent, _ := otlp.ParseContext(sampledParent)
		state := ""
		if c.want == "child" || c.passes != "" {
			state = "a=1"
		}
		if got := begun.Header.Get("Tracestate"); got != state {
			t.Errorf("%s: the upstream gets the state %q, want %q", name, got, state)
		}
		switch {
		case c.want == "":
			if span != nil || sent != c.passes {
				t.Errorf("%s: span %v, header %q", name, span, sent)
			}
		case span == nil || !valid || context != span.Context || !context.Sampled || context.Span == parent.Span:
			t.Errorf("%s: span %v, header %q", name, span, sent)
		case c.want == "child" &&
			(context.Trace != parent.Trace || span.parent != parent.Span || span.state != "a=1,b=2"):
			t.Errorf("%s: not a child of the proxy's span: %+v", name, span)
		case c.want == "new" && (context.Trace == parent.Trace || span.parent != [8]byte{} || span.state != ""):
			t.Errorf("%s: not a new trace: %+v", name, span)
		}
	}
}

// Without the setting, and for a request that is not chosen, nothing is allocated.
func TestRequestsWithoutSpansAllocateNothing(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	for name, tracing := range map[string]*tracing{"off": nil, "not chosen": {parents: true}} {
		s := &server{}
		s.runtime.Store(&runtime{Runtime: new(livepolicy.Runtime)})
		s.tracing.Store(tracing)
		reached := 0
		h := s.traced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
		if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n != 0 || reached < 100 {
			t.Errorf("%s: %v allocations, %d requests", name, n, reached)
		}
	}
}

// The action says what happened, whatever the verdict of a dry run is.
func TestActionOfASpan(t *testing.T) {
	for want, all := range map[string][]httpguard.Access{
		"allow":  {{Action: fairshare.Allow}, {Action: fairshare.Refuse, DryRun: true}, {Took: 1}},
		"refuse": {{Action: fairshare.Refuse}, {}},
		"block":  {{Action: fairshare.Block}},
		"room":   {{Action: fairshare.Allow, WaitingRoom: true}},
		"none":   {{Action: fairshare.Allow, Gone: true}},
	} {
		for i := range all {
			if got := spanAction(&all[i]); got != want {
				t.Errorf("%+v: %s, want %s", all[i], got, want)
			}
		}
	}
}

// A file of headers may have comments. Errors do not show what may be a secret.
func TestReadHeaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# of the collector\n\nauthorization: Bearer a:b \r\nX-Team:web\nx-team: shop\n")
	h, err := readHeaders(path)
	if err != nil || len(h) != 2 || h.Get("Authorization") != "Bearer a:b" ||
		strings.Join(h["X-Team"], " ") != "web shop" {
		t.Errorf("%v, %v", h, err)
	}
	for text, want := range map[string]string{
		"":                          "the file has no header",
		"# nothing\n":               "the file has no header",
		"A: b\nsecret\n":            "line 2 is not a header",
		"secret name: x\n":          "line 1 is not a header",
		"Authorization: sec\x00ret": "line 1 is not a header",
	} {
		write(text)
		if _, err := readHeaders(path); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := readHeaders(path + ".missing"); err == nil {
		t.Error("no error for a missing file")
	}
}
