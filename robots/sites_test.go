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
	s.SetHosts([]string{"a.example", "b.example"})
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
		{"down", robots.Answer{}, robots.Answer{Status: 503}, true, "the answer has status 503"},
		{"unreachable", robots.Answer{}, robots.Answer{}, true, "there was no answer"},
		{"forbidden", robots.Answer{}, robots.Answer{Status: 403}, false, ""},
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

// A client may get another file than others. It sets no rules, but is a reason to ask
// again.
func TestAnswersToClientsSetNoRules(t *testing.T) {
	other := robots.Answer{Status: 200, Body: disallowAll("/")}
	html := robots.Answer{Status: 200, Body: []byte("<html>")}
	for _, c := range []struct {
		name   string
		hosts  []string
		known  bool
		answer robots.Answer
		same   bool
		asks   bool
	}{
		{"the same", []string{"a.example"}, true, robots.Answer{Status: 200, Body: disallowAll("/a")}, true, false},
		{"another", []string{"a.example"}, true, other, false, true},
		{"another, of a host that is not own", nil, true, other, false, true},
		{"of a host that is not known", nil, false, other, true, true},
		{"none", nil, true, robots.Answer{Status: 404}, false, true},
		{"gone", nil, true, robots.Answer{Status: 410}, false, true},
		{"refused for one client", nil, true, robots.Answer{Status: 403}, false, false},
		{"down", nil, true, robots.Answer{Status: 503}, false, false},
		{"a page", nil, true, html, false, false},
		{"a page of a host that is not known", nil, false, html, false, false},
	} {
		s := robots.NewSites(nil, nil)
		s.SetHosts(c.hosts)
		s.Wanted(noon)
		if c.known {
			s.Learn("a.example", robots.Answer{Status: 200, Body: disallowAll("/a")}, noon)
		}
		at := noon.Add(10 * time.Minute)
		for range 3 {
			if got := s.Compare("A.example", c.answer, at); got != c.same {
				t.Errorf("%s: the same: %v, want %v", c.name, got, c.same)
			}
		}
		for _, state := range []fairshare.BotState{fairshare.Verified, fairshare.Claimed} {
			if got := disallowed(s, state, "a.example", "/a", at); got != c.known {
				t.Errorf("%s: bot in state %v: /a is disallowed: %v", c.name, state, got)
			}
			if disallowed(s, state, "a.example", "/b", at) {
				t.Errorf("%s: bot in state %v: the answer to a client counts", c.name, state)
			}
		}
		if got := s.Wanted(at); (len(got) > 0) != (c.asks || !c.known) || len(got) > 1 { // a verified bot was there
			t.Errorf("%s: asks for %v", c.name, got)
		}
	}
}

// If each client gets another file, the site is asked once a minute.
func TestAnswersToClientsCauseFewQuestions(t *testing.T) {
	for _, hosts := range [][]string{nil, {"a.example"}} {
		for _, c := range []struct {
			answer robots.Answer // to our questions
			most   int
		}{
			{robots.Answer{Status: 200, Body: disallowAll("/a")}, 61},
			{robots.Answer{Status: 404}, 61},
			{robots.Answer{Status: 503}, 61},
		} {
			s := robots.NewSites(nil, nil)
			s.SetHosts(hosts)
			s.Learn("a.example", robots.Answer{Status: 200, Body: disallowAll("/a")}, noon)
			asked := 0
			for second := range 3600 {
				at := noon.Add(time.Duration(second) * time.Second)
				s.Compare("a.example", robots.Answer{Status: 200, Body: disallowAll(fmt.Sprint("/", second))}, at)
				for _, host := range s.Wanted(at) {
					asked++
					s.Learn(host, c.answer, at)
				}
			}
			if asked < 50 || asked > c.most {
				t.Errorf("hosts %v, status %d: %d questions in an hour", hosts, c.answer.Status, asked)
			}
		}
	}
}

// Invented hosts neither fill the memory nor replace the site's own, and cause few
// questions and few lines.
func TestInventedHostsAreBounded(t *testing.T) {
	lines := 0
	s := robots.NewSites(nil, func(string) { lines++ })
	s.SetHosts([]string{"own.example"})
	if got := s.Wanted(noon); !slices.Equal(got, []string{"own.example"}) {
		t.Fatalf("at the start: %v", got)
	}
	s.Learn("own.example", robots.Answer{Status: 200, Body: disallowAll("/own")}, noon)
	at := noon
	old := robots.Answer{Status: 200, Body: disallowAll("/old")}
	s.Learn("old.example", old, noon)
	for i := range 30 { // read by crawlers again and again
		at = noon.Add(time.Duration(i) * 15 * time.Minute)
		s.Compare("old.example", old, at)
	}
	s.Wanted(at)
	asked := 0
	lines = 0
	for i := range 1000 {
		host := fmt.Sprintf("%d.invalid", i)
		at = at.Add(time.Second)
		for range 5 {
			s.Compare(host, robots.Answer{Status: 200, Body: disallowAll("/")}, at)
		}
		disallowed(s, fairshare.Claimed, host, "/", at)
		disallowed(s, fairshare.Pending, host, "/", at)
		for _, wanted := range s.Wanted(at) {
			asked++
			s.Learn(wanted, robots.Answer{Status: 200, Body: disallowAll("/" + host)}, at)
		}
	}
	if asked < 64 || asked > 100 {
		t.Errorf("%d questions in 1000 seconds", asked)
	}
	if lines < 1 || lines > 17 {
		t.Errorf("%d lines in 1000 seconds", lines)
	}
	if n := s.Hosts(); n > 64 {
		t.Errorf("%d hosts are kept", n)
	}
	if !disallowed(s, fairshare.Claimed, "own.example", "/own", at) ||
		!disallowed(s, fairshare.Claimed, "old.example", "/old", at) {
		t.Error("invented hosts have replaced the site's own")
	}
	s.Learn("fault.invalid", robots.Answer{Status: 200, Body: []byte("<html>")}, at)
	if got := s.Wanted(at.Add(time.Hour)); !slices.Equal(got, []string{"own.example"}) {
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
	s.Compare("", robots.Answer{Status: 200, Body: disallowAll("/stranger")}, noon)
	if disallowed(s, fairshare.Claimed, "a.example", "/stranger", noon) {
		t.Error("a client has set the default")
	}
	s.Learn(robots.DefaultHost, robots.Answer{Status: 200, Body: disallowAll("/")}, noon)
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
	s.Learn("a.example", robots.Answer{Status: 404}, noon)
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
		{0, robots.Answer{Status: 502}, time.Minute},
		{time.Minute, robots.Answer{Status: 200, Body: disallowAll("/")}, time.Hour},
		{time.Hour, robots.Answer{Status: 200, Body: []byte("<p>")}, time.Hour},
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
