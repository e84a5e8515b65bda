package robots_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/robots"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func disallowAll(path string) []byte { return []byte("User-agent: *\nDisallow: " + path + "\n") }

// A crawler is a search engine that claims its name, or proves it.
func crawler(state fairshare.BotState) *fairshare.Bot {
	return &fairshare.Bot{Name: "bingbot", Categories: []string{"search"}, State: state}
}

func disallowed(s *robots.Sites, state fairshare.BotState, host, path string, now time.Time) bool {
	r := s.Judge(crawler(state), host, "bingbot/2.0", path, now)
	return r.Disallowed
}

func TestEachHostHasItsOwnFile(t *testing.T) {
	var log []string
	s := robots.NewSites(nil, func(line string) { log = append(log, line) })
	s.Learn("A.example:443", robots.Answer{Status: 200, Body: disallowAll("/a")}, noon)
	s.Learn("b.example", robots.Answer{Status: 200, Body: disallowAll("/b")}, noon)
	for _, c := range []struct {
		host, path string
		want       bool
	}{
		{"a.example", "/a", true}, {"a.example.", "/a", true}, {"a.example:80", "/a", true}, {"a.example", "/b", false},
		{"b.example", "/b", true}, {"a.example:8080", "/a", false}, {"c.example", "/a", false}, {"", "/a", false},
	} {
		if got := disallowed(s, fairshare.Claimed, c.host, c.path, noon); got != c.want {
			t.Errorf("%s%s: %v, want %v", c.host, c.path, got, c.want)
		}
	}
	if len(log) != 2 || log[0] != "robots.txt of a.example: 1 group, 1 rule" {
		t.Errorf("log %q", log)
	}
}

// Whatever is not a robots.txt leaves the rules that were read before in force. An upstream
// that is down locks nobody out, and a site without the file allows everything.
func TestFaultyAnswersChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		first robots.Answer
		then  robots.Answer
		want  bool   // that the rules of first still hold
		log   string // what the log has of it; "" for nothing
	}{
		{"a page", robots.Answer{}, robots.Answer{Status: 200, Body: []byte("<html>Welcome</html>")}, true,
			"it is an HTML or XML page; what was read before stays in force"},
		{"empty", robots.Answer{}, robots.Answer{Status: 200}, true, "it is empty"},
		{"binary", robots.Answer{}, robots.Answer{Status: 200, Body: []byte("User-agent: *\x00\x00")}, true,
			"it is not text"},
		{"down", robots.Answer{}, robots.Answer{Status: 503, Own: true}, true, "the answer has status 503"},
		{"unreachable", robots.Answer{}, robots.Answer{Own: true}, true, "there was no answer"},
		{"refused for one client", robots.Answer{}, robots.Answer{Status: 403}, true, ""},
		{"forbidden", robots.Answer{}, robots.Answer{Status: 403, Own: true}, false, ""},
		{"gone", robots.Answer{}, robots.Answer{Status: 404}, false, ""},
		{"another", robots.Answer{}, robots.Answer{Status: 200, Body: disallowAll("/b")}, false, "1 group, 1 rule"},
	} {
		var log []string
		s := robots.NewSites(nil, func(line string) { log = append(log, line) })
		s.Learn("a.example", robots.Answer{Status: 200, Body: disallowAll("/a")}, noon)
		log = nil
		for i := range 3 {
			s.Learn("a.example", c.then, noon.Add(time.Duration(i+1)*time.Hour))
		}
		if got := disallowed(s, fairshare.Claimed, "a.example", "/a", noon); got != c.want {
			t.Errorf("%s: the old rules hold: %v, want %v", c.name, got, c.want)
		}
		switch {
		case c.log == "" && len(log) > 0, c.log != "" && (len(log) != 1 || !strings.Contains(log[0], c.log)):
			t.Errorf("%s: log %q, want one line with %q", c.name, log, c.log)
		}
	}
}

// Invented hosts neither fill the memory nor replace the site's own, nor cause
// questions.
func TestInventedHostsAreBounded(t *testing.T) {
	lines := 0
	s := robots.NewSites(nil, func(string) { lines++ })
	s.SetHosts([]string{"own.example"})
	if got := s.Wanted(noon); !slices.Equal(got, []string{"own.example"}) {
		t.Fatalf("at the start: %v", got)
	}
	s.Learn("own.example", robots.Answer{Status: 200, Body: disallowAll("/own"), Own: true}, noon)
	at := noon
	for i := range 30 { // read by crawlers again and again
		at = noon.Add(time.Duration(i) * 15 * time.Minute)
		s.Learn("old.example", robots.Answer{Status: 200, Body: disallowAll("/old")}, at)
	}
	for i := range 1000 {
		host := fmt.Sprintf("%d.invalid", i)
		for range 5 {
			s.Learn(host, robots.Answer{Status: 200, Body: disallowAll("/")}, at.Add(time.Duration(i)*time.Second))
		}
		disallowed(s, fairshare.Claimed, host, "/", at)
		disallowed(s, fairshare.Pending, host, "/", at)
	}
	if n := s.Hosts(); n > 64 {
		t.Errorf("%d hosts are kept", n)
	}
	if !disallowed(s, fairshare.Claimed, "own.example", "/own", at) ||
		!disallowed(s, fairshare.Claimed, "old.example", "/old", at) {
		t.Error("invented hosts have replaced the site's own")
	}
	if got := s.Wanted(noon.Add(time.Minute)); len(got) > 0 {
		t.Errorf("asks for %v", got)
	}
	s.Learn("fault.invalid", robots.Answer{Status: 200, Body: []byte("<html>")}, at)
	if got := s.Wanted(noon.Add(time.Hour)); !slices.Equal(got, []string{"own.example"}) {
		t.Errorf("an hour later: %v", got)
	}
}

// The file that the upstream has without a name holds for hosts that are not known, but
// not for verified bots: those make the program ask for the host's own.
func TestUnknownHosts(t *testing.T) {
	s := robots.NewSites(nil, nil)
	s.SetHosts([]string{robots.DefaultHost})
	if got := s.Wanted(noon); !slices.Equal(got, []string{robots.DefaultHost}) {
		t.Fatalf("at the start: %q", got)
	}
	s.Learn("", robots.Answer{Status: 200, Body: disallowAll("/stranger")}, noon)
	if disallowed(s, fairshare.Claimed, "a.example", "/stranger", noon) {
		t.Error("a client has set the default")
	}
	s.Learn(robots.DefaultHost, robots.Answer{Status: 200, Body: disallowAll("/"), Own: true}, noon)
	for _, c := range []struct {
		state fairshare.BotState
		host  string
		want  bool
	}{
		{fairshare.Claimed, "a.example", true}, {fairshare.Forged, "a.example", true},
		{fairshare.Verified, "a.example", false},
		{fairshare.Verified, "127.0.0.1:8080", true}, {fairshare.Verified, "[::1]:8080", true},
		{fairshare.Verified, "localhost", true}, {fairshare.NoBot, "a.example", false},
	} {
		if got := disallowed(s, c.state, c.host, "/x", noon); got != c.want {
			t.Errorf("%v at %s: %v, want %v", c.state, c.host, got, c.want)
		}
	}
	if got := s.Wanted(noon); !slices.Equal(got, []string{"a.example"}) {
		t.Errorf("after a verified bot: %q", got)
	}
	s.Learn("a.example", robots.Answer{Status: 404, Own: true}, noon)
	if disallowed(s, fairshare.Claimed, "a.example", "/x", noon) {
		t.Error("a.example has no robots.txt, and something is disallowed")
	}
	// At most one such question in ten seconds, and none for a host with odd characters.
	for i := range 20 {
		disallowed(s, fairshare.Verified, fmt.Sprintf("%d.example", i), "/", noon.Add(time.Minute))
	}
	disallowed(s, fairshare.Verified, "a.example/../x", "/", noon.Add(2*time.Minute))
	if got := s.Wanted(noon.Add(time.Minute)); !slices.Equal(got, []string{"0.example"}) {
		t.Errorf("asks for %q", got)
	}
}

// A question without an answer is asked again after a minute, and all are asked after
// an hour.
func TestQuestionsAreRepeated(t *testing.T) {
	s := robots.NewSites(nil, nil)
	s.SetHosts([]string{"a.example"})
	at := noon
	for _, c := range []struct {
		after  time.Duration
		answer robots.Answer
		next   time.Duration
	}{
		{0, robots.Answer{Status: 502, Own: true}, time.Minute},
		{time.Minute, robots.Answer{Status: 200, Body: disallowAll("/"), Own: true}, time.Hour},
		{time.Hour, robots.Answer{Status: 200, Body: []byte("<p>"), Own: true}, time.Hour},
	} {
		at = at.Add(c.after)
		if got := s.Wanted(at); len(got) != 1 {
			t.Fatalf("at %v: %q", at, got)
		}
		s.Learn("a.example", c.answer, at)
		if got := s.Wanted(at.Add(c.next - time.Second)); len(got) != 0 {
			t.Errorf("%v: asks again before %v", c.answer.Status, c.next)
		}
	}
}

func TestSitesAllocateNothing(t *testing.T) {
	s := robots.NewSites(nil, nil)
	s.Learn("a.example", robots.Answer{Status: 200, Body: disallowAll("/a")}, noon)
	bot := crawler(fairshare.Verified)
	if n := testing.AllocsPerRun(100, func() { s.Judge(bot, "a.example", "bingbot/2.0", "/a", noon) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { s.Judge(new(fairshare.Bot), "a.example", "", "/a", noon) }); n > 0 {
		t.Errorf("a browser: %v allocations", n)
	}
}

func BenchmarkSites(b *testing.B) {
	s := robots.NewSites(nil, nil)
	s.Learn("www.a.example", robots.Answer{Status: 200, Body: []byte(agents)}, noon)
	bot := crawler(fairshare.Claimed)
	for b.Loop() {
		s.Judge(bot, "www.a.example", "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)", "/shop/shoes?page=3", noon)
	}
}
