package bots

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

func TestSnapshot(t *testing.T) {
	if len(rangeDefs) > maxSets {
		t.Fatalf("%d sets, and a mask has %d bits", len(rangeDefs), maxSets)
	}
	if n := len(rangeSnapshot); n > 64<<10 {
		t.Errorf("the snapshot has %d bytes", n)
	}
	readme, err := os.ReadFile("ranges/README.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, set := range NewRanges().Sets() {
		if seen[set.Name] {
			t.Errorf("two sets %s", set.Name)
		}
		seen[set.Name] = true
		switch {
		case set.Prefixes == 0:
			if len(set.URLs) == 0 || set.Source != "" || !set.At.IsZero() {
				t.Errorf("%+v: the set can never have addresses", set)
			}
		case set.Refreshed, set.Source == "", set.At.Before(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)):
			t.Errorf("%+v", set)
		default:
			if row := fmt.Sprintf("| %s | %d | %s | %s", set.Name, set.Prefixes, set.At.Format(time.DateOnly),
				set.Source); !strings.Contains(string(readme), row) && set.Name != "ovh" {
				t.Errorf("ranges/README.md lacks %s", row)
			}
		}
	}
	for i := range rangeDefs {
		if rangeDefs[i].whole && len(rangeDefs[i].urls) == 0 {
			t.Errorf("%s is whole, and is not published", rangeDefs[i].name)
		}
		for _, name := range rangeDefs[i].near {
			if !seen[name] {
				t.Errorf("%s is near %s, which is not a set", rangeDefs[i].name, name)
			}
		}
	}
	for b := range BuiltIn().Bots {
		for _, name := range append(append([]string(nil), b.Ranges...), b.Networks...) {
			if !seen[name] {
				t.Errorf("%s: ranges %s are not known", b.Name, name)
			}
		}
	}
}

func TestContains(t *testing.T) {
	for _, c := range []struct {
		set, addr string
		in, known bool
	}{
		{"googlebot", "66.249.64.1", true, true},
		{"googlebot", "::ffff:66.249.64.1", true, true},
		{"googlebot", "66.249.96.1", false, true},
		{"google", "66.249.64.1", true, true},
		{"google", "203.208.60.105", true, true},
		{"bingbot", "66.249.64.1", false, true},
		{"apple", "17.58.102.65", true, true},
		{"applebot", "17.58.102.65", false, true},
		{"qwantbot", "192.0.2.1", false, false}, // not in the snapshot
		{"nobody", "192.0.2.1", false, false},
	} {
		if in, known := snapshot.Contains(c.set, addr(c.addr)); in != c.in || known != c.known {
			t.Errorf("%s in %s: %v, %v", c.addr, c.set, in, known)
		}
	}
	if in, known := snapshot.Contains("googlebot", netip.Addr{}); in || !known {
		t.Errorf("no address: %v, %v", in, known)
	}
}

// The index has the same result for every set as a search of its prefixes.
func TestIndexAgreesWithEachSet(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	r := NewRanges()
	index := r.index.Load()
	random := rand.New(rand.NewPCG(1, 2))
	var probes []netip.Addr
	for i := range r.sets {
		all := r.sets[i].prefixes()
		for range min(40, len(all)) {
			p := all[random.IntN(len(all))]
			b := p.Addr().AsSlice()
			for bit := p.Bits(); bit < len(b)*8; bit++ {
				b[bit/8] |= byte(random.IntN(2)) << (7 - bit%8)
			}
			inside, _ := netip.AddrFromSlice(b)
			probes = append(probes, inside, p.Addr(), p.Addr().Prev())
		}
	}
	several := 0
	for _, probe := range probes {
		if !probe.IsValid() {
			continue
		}
		var want rangeMask
		for i := range r.sets {
			for _, p := range r.sets[i].prefixes() {
				if p.Contains(probe) {
					want |= 1 << i
				}
			}
		}
		if got := index.lookup(probe); got != want {
			t.Errorf("%s: in %b, want %b", probe, got, want)
		}
		if want&(want-1) != 0 {
			several++
		}
	}
	if several < 100 {
		t.Errorf("only %d addresses are in several sets", several)
	}
}

// publishing has the answers of the operators' URLs. Other URLs answer 500.
type publishing struct {
	mu       sync.Mutex
	answers  map[string]string
	requests map[string]int
}

func (p *publishing) set(url, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[url] = body
}

func (p *publishing) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[r.URL.String()]++
	w := httptest.NewRecorder()
	if body, found := p.answers[r.URL.String()]; found {
		io.WriteString(w, body)
	} else {
		w.WriteHeader(http.StatusInternalServerError)
	}
	resp := w.Result()
	resp.Request = r
	return resp, r.Context().Err()
}

// later advances the clock of synctest to a day after the snapshot.
func later(t *testing.T) {
	t.Helper()
	time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
}

func setNamed(t *testing.T, r *Ranges, name string) RangeSet {
	t.Helper()
	return r.Sets()[setIndex(name)]
}

func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later(t)
		const gptbotURL, qwantURL = "https://openai.com/gptbot.json",
			"https://help.qwant.com/wp-content/uploads/sites/latest/qwantbot.json"
		operators := &publishing{requests: map[string]int{}, answers: map[string]string{
			gptbotURL: `{"prefixes":[{"ipv4Prefix":"192.0.2.0/24"}]}`,
			qwantURL:  "\xef\xbb\xbf" + `{"prefixes":[{"ipv4Prefix":"198.51.100.0/24"}]}`,
		}}
		folder := t.TempDir()
		var mu sync.Mutex
		said := map[string][]string{}
		refresh := Refresh{Every: time.Hour, Folder: folder, Transport: operators, Agent: "fairshare/test",
			Log: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				name, _, _ := strings.Cut(strings.TrimPrefix(text, "ranges of "), ":")
				said[name] = append(said[name], text)
			}}
		lastSaid := func(name string) string {
			mu.Lock()
			defer mu.Unlock()
			if n := len(said[name]); n > 0 {
				return said[name][n-1]
			}
			return ""
		}
		r := NewRanges()
		v := NewVerifier(Options{Ranges: r})
		expect := func(when, userAgent, from string, want fairshare.BotState) {
			t.Helper()
			if got := v.Look(addr(from), userAgent); got.State != want {
				t.Errorf("%s: %s from %s is %v, want %v", when, got.Name, from, got.State, want)
			}
		}
		const qwantUA = "Mozilla/5.0 (compatible; Qwantbot/1.0; +https://help.qwant.com/bot/)"
		expect("at first", gptbotUA, "192.0.2.1", fairshare.Forged)
		expect("at first", gptbotUA, "20.171.206.7", fairshare.Verified)
		expect("at first", qwantUA, "198.51.100.1", fairshare.Pending)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, refresh) }()
		synctest.Wait()
		expect("refreshed", gptbotUA, "192.0.2.1", fairshare.Verified)
		// not in the new list, but in a cloud that it uses
		expect("refreshed", gptbotUA, "20.171.206.7", fairshare.Pending)
		expect("refreshed", qwantUA, "198.51.100.1", fairshare.Verified)
		expect("no answer", googlebotUA, "66.249.64.1", fairshare.Verified)
		if set := setNamed(t, r, "gptbot"); !set.Refreshed || set.Prefixes != 1 || !set.At.Equal(time.Now()) ||
			set.Problem != "" {
			t.Errorf("%+v", set)
		}
		if set := setNamed(t, r, "googlebot"); set.Refreshed || set.Prefixes != 65 || set.At.Year() != 2026 ||
			!strings.HasSuffix(set.Problem, ": status 500; the built-in version stays in use") {
			t.Errorf("%+v", set)
		}

		// These answers are implausible.
		for _, c := range []struct{ name, body, want string }{
			{"empty", `{"prefixes":[]}`, "it contains no address"},
			{"all", `{"prefixes":[{"ipv4Prefix":"0.0.0.0/0"}]}`,
				"line 1: 0.0.0.0/0 is shorter than /8: such a large part of the Internet must be a mistake"},
			{"a /8", `{"prefixes":[{"ipv4Prefix":"192.0.2.0/24"},{"ipv4Prefix":"8.0.0.0/8"}]}`,
				"8.0.0.0/8 is wider than any crawler's network"},
			{"much of IPv6", `{"prefixes":[{"ipv6Prefix":"2000::/12"}]}`,
				"2000::/12 is wider than any crawler's network"},
			{"many /9", `["1.0.0.0/9","2.0.0.0/9"]`, "16777216 IPv4 addresses are more than any crawler has"},
			{"HTML", "<html>", "a page of HTML or XML, not a list of addresses"},
		} {
			operators.set(gptbotURL, c.body)
			time.Sleep(67 * time.Minute)
			expect(c.name, gptbotUA, "192.0.2.1", fairshare.Verified)
			expect(c.name, gptbotUA, "8.8.8.8", fairshare.Forged)
			if got := lastSaid("gptbot"); !strings.Contains(got, ": https://openai.com: "+c.want+"; the 1 prefix of ") {
				t.Errorf("%s: said %s", c.name, got)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		// After another start, the copies are in use without requests.
		for name := range operators.requests {
			delete(operators.requests, name)
		}
		r = NewRanges()
		v = NewVerifier(Options{Ranges: r})
		if err := r.Load(refresh); err != nil || len(operators.requests) > 0 {
			t.Errorf("%v, requests %v", err, operators.requests)
		}
		expect("kept", gptbotUA, "192.0.2.1", fairshare.Verified)
		expect("kept", qwantUA, "198.51.100.1", fairshare.Verified)
		if set := setNamed(t, r, "gptbot"); !set.Refreshed || set.Problem != "" {
			t.Errorf("%+v", set)
		}
		e := v.Explain(t.Context(), addr("192.0.2.1"), gptbotUA)
		if text := strings.Join(e.Steps, "; "); !strings.Contains(text,
			"in the published ranges of gptbot (192.0.2.0/24; refreshed 2027-01-01 ") {
			t.Errorf("explained by %s", text)
		}
	})
}

// Until all URLs of a set have answered, it is the snapshot and the answers so far.
func TestRefreshInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later(t)
		operators := &publishing{requests: map[string]int{}, answers: map[string]string{
			googleRanges + "user-triggered-fetchers.json": `{"prefixes":[{"ipv4Prefix":"192.0.2.0/24"}]}`,
		}}
		r := NewRanges()
		old := r.sets[setIndex("google-user-triggered")].snapshot[0].Addr()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, Refresh{Transport: operators}) }()
		synctest.Wait()
		check := func(when, address string, want bool) {
			t.Helper()
			if in, _ := r.Contains("google-user-triggered", addr(address)); in != want {
				t.Errorf("%s: %s is in: %v", when, address, in)
			}
		}
		check("one of three", "192.0.2.1", true)
		check("one of three", old.String(), true)
		if set := setNamed(t, r, "google-user-triggered"); set.Refreshed {
			t.Errorf("%+v", set)
		}
		operators.set(googleRanges+"user-triggered-fetchers-google.json",
			`{"prefixes":[{"ipv4Prefix":"198.51.100.0/24"}]}`)
		operators.set(googleRanges+"user-triggered-agents.json", `{"prefixes":[{"ipv4Prefix":"203.0.113.0/24"}]}`)
		time.Sleep(2 * time.Hour)
		check("all three", "192.0.2.1", true)
		check("all three", "198.51.100.1", true)
		check("all three", "203.0.113.1", true)
		check("all three", old.String(), false)
		if set := setNamed(t, r, "google-user-triggered"); !set.Refreshed || set.Prefixes != 3 {
			t.Errorf("%+v", set)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A copy that is older than the snapshot is ignored.
func TestOldCopiesDoNotReplaceTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in the year 2000
		operators := &publishing{requests: map[string]int{},
			answers: map[string]string{"https://openai.com/gptbot.json": `["192.0.2.0/24"]`}}
		folder := t.TempDir()
		r := NewRanges()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, Refresh{Folder: folder, Transport: operators}) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, "gptbot.copy")); err != nil {
			t.Fatal(err)
		}
		r = NewRanges()
		if err := r.Load(Refresh{Folder: folder}); err != nil {
			t.Fatal(err)
		}
		if in, _ := r.Contains("gptbot", addr("192.0.2.1")); in {
			t.Error("the old copy is in use")
		}
		if in, _ := r.Contains("gptbot", addr("20.171.206.7")); !in {
			t.Error("the snapshot is not in use")
		}
	})
}

// Lookups continue while sets are replaced, and see only complete sets.
func TestLookWhileRefreshing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "192.0.2.0/24\n")
	}))
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "http://")
	r := NewRanges()
	v := NewVerifier(Options{Ranges: r})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx, Refresh{Transport: toServer(target)}) }()
	seen := fairshare.Forged
	for began := time.Now(); seen == fairshare.Forged && time.Since(began) < 10*time.Second; {
		seen = v.Look(addr("192.0.2.1"), gptbotUA).State
		if got := v.Look(addr("221.231.6.195"), googlebotUA); got.State != fairshare.Forged {
			t.Fatalf("during a refresh: %+v", got)
		}
		r.Sets()
	}
	if seen != fairshare.Verified {
		t.Errorf("at last: %v", seen)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// toServer sends all requests to one server on loopback.
type toServer string

func (host toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", string(host)
	return http.DefaultTransport.RoundTrip(r)
}

func TestSnapshotErrors(t *testing.T) {
	for text, want := range map[string]string{
		"[nobody] 2026-01-01 x\n192.0.2.1\n": "unknown set nobody",
		"[gptbot] today x\n192.0.2.1\n":      `set gptbot: parsing time "today"`,
		"[gptbot] 2026-01-01 x\nnonsense\n":  `set gptbot: line 1: "nonsense" is neither an address nor a prefix`,
	} {
		r := NewRanges()
		if err := r.readSnapshot(pack(t, text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := NewRanges().readSnapshot([]byte("x")); err == nil {
		t.Error("no gzip: no error")
	}
}

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// BenchmarkLookup looks an address up in all published ranges at once.
func BenchmarkLookup(b *testing.B) {
	index := NewRanges().index.Load()
	for _, c := range []struct{ name, addr string }{
		{"v4 inside", "66.249.64.1"}, {"v4 outside", "192.0.2.1"}, {"v6 inside", "2001:4860:4801:10::1"},
		{"v6 outside", "2001:db8::1"},
	} {
		b.Run(c.name, func(b *testing.B) {
			from := addr(c.addr)
			want := index.lookup(from)
			b.ReportAllocs()
			for b.Loop() {
				if index.lookup(from) != want {
					b.Fatal("changed")
				}
			}
		})
	}
	b.Run("many", func(b *testing.B) {
		random := rand.New(rand.NewPCG(1, 2))
		addrs := make([]netip.Addr, 1<<16)
		for i := range addrs {
			addrs[i] = netip.AddrFrom4([4]byte{byte(1 + random.IntN(223)), byte(random.IntN(256)),
				byte(random.IntN(256)), byte(random.IntN(256))})
		}
		b.ReportAllocs()
		i, in := 0, 0
		for b.Loop() {
			if index.lookup(addrs[i&(1<<16-1)]) != 0 {
				in++
			}
			i++
		}
		if in == 0 {
			b.Fatal("no address is in a set")
		}
	})
}

// BenchmarkNewRanges unpacks and indexes the snapshot.
func BenchmarkNewRanges(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if r := NewRanges(); r.index.Load().known == 0 {
			b.Fatal("empty")
		}
	}
}
