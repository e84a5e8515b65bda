package botauth_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/botauth"
	"fairshare/botauth/botauthtest"
)

const site = "shop.example"

var (
	client = netip.MustParseAddr("192.0.2.7")
	other  = netip.MustParseAddr("198.51.100.7")
	noon   = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
)

func isSite(host string) bool { return host == site }

// signed returns a request of a signer, created at a time.
func signed(s *botauthtest.Signer, created time.Time) *botauth.Request {
	header := http.Header{}
	s.Sign(header, site, created)
	return &botauth.Request{Method: "GET", Scheme: "https", Host: site, Target: "/", Header: header}
}

func with(s *botauthtest.Signer) botauth.Options {
	return botauth.Options{Host: isSite, Agents: []botauth.Agent{{Host: s.Agent, Keys: []botauth.Key{s.Key()}}}}
}

func TestVerify(t *testing.T) {
	signer, stranger := botauthtest.New("agent.example"), botauthtest.New("stranger.example")
	impostor := botauthtest.New("agent.example")
	lasting := func(lifetime time.Duration) *botauthtest.Signer {
		return &botauthtest.Signer{Agent: "agent.example", Private: signer.Private, Lifetime: lifetime}
	}
	set := func(name, from, to string) func(*botauth.Request) {
		return func(r *botauth.Request) {
			value := r.Header[name][0]
			if !strings.Contains(value, from) {
				panic(value)
			}
			r.Header[name] = []string{strings.ReplaceAll(value, from, to)}
		}
	}
	for _, c := range []struct {
		name   string
		signer *botauthtest.Signer
		age    time.Duration
		change func(*botauth.Request)
		want   botauth.State
		reason string
	}{
		{"valid", signer, 0, nil, botauth.Verified, "valid"},
		{"string", &botauthtest.Signer{Agent: "agent.example", Private: signer.Private, Legacy: true}, 0, nil,
			botauth.Verified, "valid"},
		{"clock ahead", signer, -59 * time.Second, nil, botauth.Verified, "valid"},
		{"clock too far ahead", signer, -61 * time.Second, nil, botauth.Unproven, "future"},
		{"expired", signer, time.Minute, nil, botauth.Unproven, "expired"},
		{"old", lasting(time.Hour), 601 * time.Second, nil, botauth.Unproven, "10 minutes"},
		{"for two days", lasting(48 * time.Hour), 0, nil, botauth.Unproven, "a day"},
		{"unknown agent", stranger, 0, nil, botauth.Unsigned, "Signature-Agent"},
		{"another key", impostor, 0, nil, botauth.Forged, "none of its agent's"},
		{"another tag", signer, 0, set("Signature-Input", "web-bot-auth", "other"), botauth.Unsigned, "no signature"},
		{"http", signer, 0, set("Signature-Agent", "https:", "http:"), botauth.Unsigned, "https URL"},
		{"a path", signer, 0, set("Signature-Agent", ".example", ".example/keys"), botauth.Unsigned, "https URL"},
		{"an address", signer, 0, set("Signature-Agent", "agent.example", "127.0.0.1"), botauth.Unsigned, "https URL"},
		{"another agent's URL", signer, 0, set("Signature-Agent", "agent.", "agent2."), botauth.Unsigned, ""},
		{"key replaced", impostor, 0, set("Signature-Input", impostor.Key().ID, signer.Key().ID), botauth.Forged,
			"wrong"},
		{"another algorithm", signer, 0, set("Signature-Input", `"ed25519"`, `"hmac-sha256"`), botauth.Unproven,
			"Ed25519"},
		{"no key", signer, 0, set("Signature-Input", "keyid", "other"), botauth.Unproven, "keyid"},
		{"no expiry", signer, 0, set("Signature-Input", "expires", "other"), botauth.Unproven, "expires"},
		{"created is text", signer, 0, set("Signature-Input", "created=", "created=a"), botauth.Unproven, "created"},
		{"agent not covered", signer, 0, set("Signature-Input", ` "signature-agent";key="sig1"`, ""), botauth.Unproven,
			"does not cover Signature-Agent"},
		{"host not covered", signer, 0, set("Signature-Input", "@authority", "@method"), botauth.Unproven,
			"@authority"},
		{"covered twice", signer, 0, set("Signature-Input", `"@authority"`, `"@authority" "@authority"`),
			botauth.Unproven, "structured fields"},
		{"unknown component", signer, 0, set("Signature-Input", `"@authority"`, `"@authority" "@query-param";name="a"`),
			botauth.Unproven, "cannot be checked"},
		{"component of the response", signer, 0, set("Signature-Input", `"@authority"`, `"@authority" "date";req`),
			botauth.Unproven, "cannot be checked"},
		{"header that is missing", signer, 0, set("Signature-Input", `"@authority"`, `"@authority" "date"`),
			botauth.Unproven, "cannot be checked"},
		{"short signature", signer, 0, set("Signature", "==", ""), botauth.Unproven, ""},
		{"another label", signer, 0, set("Signature", "sig1=", "sig2="), botauth.Unproven, "structured fields"},
		{"broken field", signer, 0, set("Signature-Input", ")", "("), botauth.Unsigned, "structured fields"},
		{"two hosts", signer, 0, func(r *botauth.Request) { r.Host = "other.example" }, botauth.Unproven, "hosts"},
		{"oversized", signer, 0, func(r *botauth.Request) {
			r.Header["Signature-Input"] = append(r.Header["Signature-Input"], strings.Repeat("a", 4<<10))
		}, botauth.Unsigned, "longer"},
		{"unsigned", signer, 0, func(r *botauth.Request) { delete(r.Header, "Signature-Input") }, botauth.Unsigned,
			"no signature"},
		{"no value", signer, 0, func(r *botauth.Request) { delete(r.Header, "Signature") }, botauth.Unproven, ""},
		{"changed expiry", signer, 0, set("Signature-Input", "expires=1", "expires=1"), botauth.Verified, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := botauth.NewVerifier(with(signer))
			r := signed(c.signer, noon.Add(-c.age))
			if c.change != nil {
				c.change(r)
			}
			got := v.Verify(r, client, noon)
			if got.State != c.want || !strings.Contains(got.Reason, c.reason) ||
				(got.Agent == "agent.example") != (c.want != botauth.Unsigned) {
				t.Errorf("%d by %q: %s; want %d", got.State, got.Agent, got.Reason, c.want)
			}
		})
	}
}

// Every change of a byte in what is signed makes the signature invalid.
func TestEveryByteIsSigned(t *testing.T) {
	signer := botauthtest.New("agent.example")
	for name := range signed(signer, noon).Header {
		for i := range signed(signer, noon).Header[name][0] {
			r := signed(signer, noon)
			changed := []byte(r.Header[name][0])
			if changed[i]++; changed[i] == 'A' || changed[i] == 'Z'+1 {
				continue // a scheme in upper case
			}
			if name == "Signature" && i == len(changed)-4 {
				continue // the last digit before "==": its last bits mean nothing
			}
			r.Header[name] = []string{string(changed)}
			if got := botauth.NewVerifier(with(signer)).Verify(r, client, noon); got.State == botauth.Verified {
				t.Errorf("%s: %s is verified", name, changed)
			}
		}
	}
}

func TestComponents(t *testing.T) {
	signer := botauthtest.New("agent.example")
	sign := func(components, base string, r *botauth.Request) {
		r.Header = http.Header{}
		signer.Sign(r.Header, site, noon)
		input := r.Header["Signature-Input"][0]
		params := strings.Replace(strings.TrimPrefix(input, "sig1="), `("@authority" `, "("+components+" ", 1)
		text := base + "\n\"signature-agent\";key=\"sig1\": \"https://agent.example\"\n\"@signature-params\": " + params
		r.Header["Signature-Input"] = []string{"sig1=" + params}
		r.Header["Signature"] = []string{"sig1=:" + encode(ed25519.Sign(signer.Private, []byte(text))) + ":"}
	}
	for _, c := range []struct {
		name, components, base string
		r                      botauth.Request
	}{
		{"target-uri", `"@target-uri"`, `"@target-uri": https://shop.example/a?b=%20`,
			botauth.Request{Scheme: "https", Target: "/a?b=%20"}},
		{"the scheme that a proxy does not tell", `"@target-uri"`, `"@target-uri": https://shop.example/a`,
			botauth.Request{Scheme: "http", Target: "/a"}},
		{"absolute form", `"@target-uri"`, `"@target-uri": http://shop.example/a`,
			botauth.Request{Target: "http://shop.example/a"}},
		{"path and query", `"@authority" "@method" "@path" "@query"`,
			"\"@authority\": shop.example\n\"@method\": POST\n\"@path\": /a%2Fb\n\"@query\": ?c=d",
			botauth.Request{Method: "POST", Target: "/a%2Fb?c=d"}},
		{"no query", `"@authority" "@query"`, "\"@authority\": shop.example\n\"@query\": ?",
			botauth.Request{Target: "/"}},
		{"scheme and target", `"@authority" "@scheme" "@request-target"`,
			"\"@authority\": shop.example\n\"@scheme\": https\n\"@request-target\": /x?y", botauth.Request{Target: "/x?y"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.r
			if r.Host = site; r.Method == "" {
				r.Method = "GET"
			}
			sign(c.components, c.base, &r)
			if got := botauth.NewVerifier(with(signer)).Verify(&r, client, noon); got.State != botauth.Verified {
				t.Fatalf("%+v", got)
			}
			r.Target = "/other?z"
			if strings.HasPrefix(c.r.Target, "http") {
				r.Target = "http://shop.example/other"
			}
			if got := botauth.NewVerifier(with(signer)).Verify(&r, client, noon); got.State != botauth.Forged {
				t.Errorf("with another target: %+v", got)
			}
		})
	}
}

func TestReplay(t *testing.T) {
	signer := botauthtest.New("agent.example")
	v := botauth.NewVerifier(with(signer))
	r := signed(signer, noon)
	for i, c := range []struct {
		addr netip.Addr
		want botauth.State
	}{{client, botauth.Verified}, {client, botauth.Unproven}, {other, botauth.Unproven}} {
		if got := v.Verify(r, c.addr, noon.Add(time.Duration(i)*time.Second)); got.State != c.want {
			t.Errorf("use %d: %+v", i+1, got)
		}
	}
	// A new policy file remembers it.
	options := with(signer)
	options.Previous = v
	if got := botauth.NewVerifier(options).Verify(r, client, noon.Add(3*time.Second)); got.State != botauth.Unproven {
		t.Errorf("after a reload: %+v", got)
	}
	// After a restart it is too old.
	options.Previous, options.Start = nil, noon.Add(5*time.Second)
	if got := botauth.NewVerifier(options).Verify(r, client, noon.Add(6*time.Second)); got.State != botauth.Unproven {
		t.Errorf("after a restart: %+v", got)
	}

	// Without a nonce it is bound to an address.
	signer.NoNonce = true
	r = signed(signer, noon.Add(10*time.Second))
	for i, c := range []struct {
		addr netip.Addr
		want botauth.State
	}{{client, botauth.Verified}, {client, botauth.Verified}, {other, botauth.Unproven}, {client, botauth.Verified}} {
		if got := v.Verify(r, c.addr, noon.Add(11*time.Second)); got.State != c.want {
			t.Errorf("use %d without a nonce: %+v", i+1, got)
		}
	}
}

// Of many requests with one signature at once, one is verified.
func TestReplayAtOnce(t *testing.T) {
	t.Parallel()
	signer := botauthtest.New("agent.example")
	v := botauth.NewVerifier(with(signer))
	r := signed(signer, noon)
	var all sync.WaitGroup
	var mu sync.Mutex
	verified := 0
	for range 50 {
		all.Go(func() {
			if v.Verify(r, client, noon).State == botauth.Verified {
				mu.Lock()
				verified++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if verified != 1 {
		t.Errorf("%d are verified", verified)
	}
}

// Nobody who has no key can use up a nonce.
func TestForgeriesUseNoNonce(t *testing.T) {
	signer := botauthtest.New("agent.example")
	v := botauth.NewVerifier(with(signer))
	r := signed(signer, noon)
	forged := *r
	forged.Header = maps.Clone(r.Header)
	forged.Header["Signature"] = []string{"sig1=:" + encode(bytes.Repeat([]byte{1}, 64)) + ":"}
	if got := v.Verify(&forged, other, noon); got.State != botauth.Forged {
		t.Errorf("%+v", got)
	}
	if got := v.Verify(r, client, noon); got.State != botauth.Verified {
		t.Errorf("%+v", got)
	}
}

// An address that sends wrong signatures causes no more checks, and does not keep others
// from being verified.
func TestWrongSignaturesAreBounded(t *testing.T) {
	signer := botauthtest.New("agent.example")
	v := botauth.NewVerifier(with(signer))
	wrong := func(addr netip.Addr) botauth.Result {
		r := signed(signer, noon)
		r.Header["Signature"] = []string{"sig1=:" + encode(bytes.Repeat([]byte{1}, 64)) + ":"}
		return v.Verify(r, addr, noon)
	}
	if got := v.Verify(signed(signer, noon), other, noon); got.State != botauth.Verified {
		t.Fatalf("%+v", got)
	}
	checked := 0
	for i := range 5000 {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 5), byte(i), 1})
		if wrong(addr).State == botauth.Forged {
			checked++
		}
	}
	if checked != 300 {
		t.Errorf("%d wrong signatures were checked in one second", checked)
	}
	if got := v.Verify(signed(signer, noon), other, noon); got.State != botauth.Verified {
		t.Errorf("an address that signs, meanwhile: %+v", got)
	}
	if got := v.Verify(signed(signer, noon), client, noon); got.State != botauth.Unproven {
		t.Errorf("a new address, meanwhile: %+v", got)
	}
	later := noon.Add(time.Second)
	if got := v.Verify(signed(signer, later), client, later); got.State != botauth.Verified {
		t.Errorf("a new address, a second later: %+v", got)
	}
	for i := range 20 {
		r := signed(signer, later)
		r.Header["Signature"] = []string{"sig1=:" + encode(bytes.Repeat([]byte{1}, 64)) + ":"}
		want := botauth.Forged
		if i >= 10 {
			want = botauth.Unproven
		}
		if got := v.Verify(r, netip.MustParseAddr("203.0.113.9"), later); got.State != want {
			t.Errorf("wrong signature %d of an address: %+v", i+1, got)
		}
	}
}

func TestKeysHaveTimes(t *testing.T) {
	signer := botauthtest.New("agent.example")
	for _, c := range []struct {
		from, until int64
		want        botauth.State
	}{
		{0, 0, botauth.Verified},
		{noon.Unix() - 1, noon.Unix() + 1, botauth.Verified},
		{noon.Unix() + 3600, 0, botauth.Unproven},
		{0, noon.Unix(), botauth.Unproven},
	} {
		key := signer.Key()
		key.NotBefore, key.Expires = c.from, c.until
		v := botauth.NewVerifier(botauth.Options{Host: isSite,
			Agents: []botauth.Agent{{Host: "agent.example", Keys: []botauth.Key{key}}}})
		if got := v.Verify(signed(signer, noon), client, noon); got.State != c.want {
			t.Errorf("from %d to %d: %+v", c.from, c.until, got)
		}
	}
}

// Without the names of the site a signature may be one for another site.
func TestHostsAreNeeded(t *testing.T) {
	signer := botauthtest.New("agent.example")
	options := with(signer)
	options.Host = nil
	got := botauth.NewVerifier(options).Verify(signed(signer, noon), client, noon)
	if got.State != botauth.Unproven || !strings.Contains(got.Reason, "hosts") {
		t.Errorf("%+v", got)
	}
}

// A web is a directory server, as an http.RoundTripper.
type web struct {
	mu        sync.Mutex
	answer    func() (status int, body []byte, err error)
	requested []string
}

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested = append(w.requested, r.URL.String())
	status, body, err := w.answer()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://elsewhere.example/"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}

func (w *web) set(answer func() (int, []byte, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *web) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requested)
}

func serving(signers ...*botauthtest.Signer) func() (int, []byte, error) {
	return func() (int, []byte, error) { return 200, botauthtest.Directory(signers...), nil }
}

func TestDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer, newer := botauthtest.New("agent.example"), botauthtest.New("agent.example")
		server := &web{answer: serving(signer)}
		var lines []string
		v := botauth.NewVerifier(botauth.Options{Host: isSite, Transport: server,
			Agents: []botauth.Agent{{Host: "agent.example"}}, Log: func(s string) { lines = append(lines, s) }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { v.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		expect := func(s *botauthtest.Signer, want botauth.State, fetches int, when string) {
			t.Helper()
			got := v.Verify(signed(s, time.Now()), client, time.Now())
			synctest.Wait()
			if got.State != want || server.count() != fetches {
				t.Fatalf("%s: %+v after %d fetches; want %d after %d", when, got, server.count(), want, fetches)
			}
		}
		synctest.Wait()
		if server.count() != 0 {
			t.Fatal("a directory is fetched before a signature comes")
		}
		expect(botauthtest.New("stranger.example"), botauth.Unsigned, 0, "an unknown agent")
		expect(signer, botauth.Pending, 1, "the first request")
		if server.requested[0] != "https://agent.example/.well-known/http-message-signatures-directory" {
			t.Error(server.requested)
		}
		expect(signer, botauth.Verified, 1, "when the keys are known")
		expect(newer, botauth.Forged, 1, "a key that the directory does not have")
		server.set(serving(newer))
		time.Sleep(6 * time.Minute)
		expect(newer, botauth.Unproven, 2, "a key that may be newer")
		expect(newer, botauth.Verified, 2, "the key is rotated")
		expect(signer, botauth.Forged, 2, "the old key is withdrawn")
		for range 100 {
			expect(botauthtest.New("agent.example"), botauth.Forged, 2, "made-up keys")
			got := v.Verify(signed(newer, time.Now()), netip.MustParseAddr("2001:db8::1"), time.Now())
			if got.State != botauth.Verified {
				t.Fatalf("the agent is not verified: %+v", got)
			}
		}

		// Failures leave the keys in use for two days.
		server.set(func() (int, []byte, error) { return 0, nil, errors.New("no route") })
		time.Sleep(2 * time.Hour)
		expect(newer, botauth.Verified, 3, "while the directory fails")
		expect(newer, botauth.Verified, 3, "soon after a failure")
		time.Sleep(2 * time.Minute)
		expect(newer, botauth.Verified, 4, "the next try")
		time.Sleep(48 * time.Hour)
		expect(newer, botauth.Unproven, 5, "two days later")
		server.set(serving(newer))
		time.Sleep(10 * time.Minute)
		expect(newer, botauth.Unproven, 6, "it works again")
		expect(newer, botauth.Verified, 6, "it works again")
		if len(lines) != 2 || !strings.Contains(lines[0], "agent.example") || !strings.Contains(lines[1], "again") {
			t.Errorf("%q", lines)
		}
	})
}

// What is not a directory is a failure: the claim is neither proved nor pending.
func TestFaultyDirectories(t *testing.T) {
	signer := botauthtest.New("agent.example")
	for name, answer := range map[string]func() (int, []byte, error){
		"redirect":  func() (int, []byte, error) { return 302, botauthtest.Directory(signer), nil },
		"not found": func() (int, []byte, error) { return 404, botauthtest.Directory(signer), nil },
		"a page":    func() (int, []byte, error) { return 200, []byte("<!DOCTYPE html>"), nil },
		"too large": func() (int, []byte, error) {
			return 200, append(botauthtest.Directory(signer), bytes.Repeat([]byte(" "), 65<<10)...), nil
		},
		"too many keys": func() (int, []byte, error) {
			all := make([]*botauthtest.Signer, 65)
			for i := range all {
				all[i] = signer
			}
			return 200, botauthtest.Directory(all...), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &web{answer: answer}
				v := botauth.NewVerifier(botauth.Options{Host: isSite, Transport: server,
					Agents: []botauth.Agent{{Host: "agent.example"}}})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { v.Run(ctx); close(done) }()
				v.Verify(signed(signer, time.Now()), client, time.Now())
				synctest.Wait()
				got := v.Verify(signed(signer, time.Now()), client, time.Now())
				if got.State != botauth.Unproven || server.count() != 1 {
					t.Errorf("%+v after %d fetches", got, server.count())
				}
				cancel()
				<-done
			})
		})
	}
}

// Explain waits for keys, and the signature can be used afterwards.
func TestExplain(t *testing.T) {
	signer := botauthtest.New("agent.example")
	server := &web{answer: serving(signer)}
	v := botauth.NewVerifier(botauth.Options{Host: isSite, Transport: server,
		Agents: []botauth.Agent{{Host: "agent.example"}}})
	now := time.Now()
	r := signed(signer, now)
	for range 2 {
		if got := v.Explain(t.Context(), r, client, now); got.State != botauth.Verified {
			t.Errorf("%+v", got)
		}
	}
	if got := v.Verify(r, client, now); got.State != botauth.Verified || server.count() != 1 {
		t.Errorf("%+v after %d fetches", got, server.count())
	}
}

// No connection is made to an address that is not public, whatever the DNS says of a
// host.
func TestOnlyPublicAddressesAreFetched(t *testing.T) {
	var lines []string
	signer := botauthtest.New("localhost")
	v := botauth.NewVerifier(botauth.Options{Host: isSite, Agents: []botauth.Agent{{Host: "localhost"}},
		Log: func(s string) { lines = append(lines, s) }})
	now := time.Now()
	got := v.Explain(t.Context(), signed(signer, now), client, now)
	if got.State != botauth.Unproven || len(lines) != 1 || !strings.Contains(lines[0], "not public") {
		t.Errorf("%+v, %q", got, lines)
	}
}

func TestNormalAgent(t *testing.T) {
	for s, want := range map[string]string{
		"Agent.Example": "agent.example", "agent.example:443": "agent.example",
		"agent.example:8443": "agent.example:8443", "localhost": "localhost", "a-b.c2": "a-b.c2",
		"": "", "a..b": "", ".a": "", "a.": "", "-a.b": "", "a b": "", "a/b": "", "user@a.b": "",
		"127.0.0.1": "", "1": "",
		"0x7f.0x1": "", "[::1]": "", "a.b:0": "", "a.b:": "", "a.b:x": "", "a.b:123456": "", "ä.example": "",
		strings.Repeat("a", 64) + ".b": "",
	} {
		got, ok := botauth.NormalAgent(s)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", s, got, ok, want)
		}
	}
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// Keys come over a real connection with TLS; a redirect is not followed.
func TestFetchByTLS(t *testing.T) {
	t.Parallel()
	signer := botauthtest.New("example.com") // a name in the certificate of httptest
	for _, c := range []struct {
		redirect bool
		want     botauth.State
	}{{false, botauth.Verified}, {true, botauth.Unproven}} {
		var requests []string
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r.Host+r.URL.Path+" "+r.UserAgent())
			if c.redirect {
				http.Redirect(w, r, "https://example.com/keys", http.StatusFound)
				return
			}
			w.Header().Set("Content-Type", "application/http-message-signatures-directory+json")
			w.Write(botauthtest.Directory(signer))
		}))
		transport := server.Client().Transport.(*http.Transport)
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
		v := botauth.NewVerifier(botauth.Options{Host: isSite, Agents: []botauth.Agent{{Host: "example.com"}},
			Transport: transport, UserAgent: "fairshare/test"})
		now := time.Now()
		got := v.Explain(t.Context(), signed(signer, now), client, now)
		server.Close()
		if got.State != c.want || len(requests) != 1 ||
			requests[0] != "example.com/.well-known/http-message-signatures-directory fairshare/test" {
			t.Errorf("redirect %v: %+v, %q", c.redirect, got, requests)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	signer := botauthtest.New("agent.example")
	run := func(name string, request func(i int) *botauth.Request) {
		b.Run(name, func(b *testing.B) {
			v := botauth.NewVerifier(with(signer))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				v.Verify(request(i), client, noon)
			}
		})
	}
	valid := make([]*botauth.Request, 4096)
	for i := range valid {
		valid[i] = signed(signer, noon)
	}
	wrong := signed(signer, noon)
	wrong.Header["Signature"] = []string{"sig1=:" + encode(bytes.Repeat([]byte{1}, 64)) + ":"}
	stranger := signed(botauthtest.New("stranger.example"), noon)
	run("first 4096 valid, then replayed", func(i int) *botauth.Request { return valid[i%len(valid)] })
	run("wrong, ten checked", func(int) *botauth.Request { return wrong })
	run("unknown agent", func(int) *botauth.Request { return stranger })
}
