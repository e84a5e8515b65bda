package dashboard

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/reports"
	"fairshare/internal/traffic"
)

// twoDays gives a site the counts of two days: 192.0.2.1 sends 1 to 6 requests a minute, and an hour of silence
// is between.
func (s *site) twoDays() {
	p := s.console.Policy
	end := p.Now()
	begin := end.Add(-50 * time.Hour)
	s.console.Traffic = traffic.New(begin)
	addr := netip.MustParseAddr("192.0.2.1")
	passed := reports.OfCompletion(&httpguard.Completion{Client: httpguard.Client{Addr: addr}, Method: "GET",
		Path: "/shop", Status: 200,
		Took: 120 * time.Millisecond, Bytes: 40_000, UserAgent: "Mozilla/5.0",
		Owner: fairshare.Owner{ASN: 64500, Name: "Example Hosting"}, Fleet: "fleet-1"})
	refused := reports.OfReport(&httpguard.Report{Request: &fairshare.Request{Addr: addr, Method: "GET", Path: "/shop",
		Owner: passed.Owner, Fleet: "fleet-1"}, Finding: fairshare.Finding{Action: fairshare.Refuse}, Status: 429})
	passed.Client = netip.PrefixFrom(addr, 32)
	refused.Client = passed.Client
	for at := begin; at.Before(end); at = at.Add(10 * time.Second) {
		hour := int(at.Sub(begin) / time.Hour)
		if seconds := int(at.Unix()); hour != 20 && seconds%60 < (hour%24+4)*5/2 {
			s.console.Traffic.Passed(passed)
			if hour > 30 && seconds%3 == 0 {
				refused.Paths[0].Time, refused.Last = p.Wall(at), p.Wall(at)
				s.console.Traffic.Refused(refused)
			}
		}
		s.console.Traffic.Tick(at, p.Wall(at), traffic.Load{})
	}
}

func TestHistoryIsShown(t *testing.T) {
	s := open(t, nil)
	s.twoDays()
	for _, path := range []string{"/client?client=192.0.2.1&span=2d", "/client?client=192.0.2.0/24&span=2d",
		"/history?by=owner&key=AS64500&span=2d", "/history?by=fleet&key=fleet-1&span=2d"} {
		status, text := s.get(path)
		checkPage(t, path, text)
		section := text[strings.Index(text, `id="history-title"`):]
		section = section[:strings.Index(section, "</section>")]
		for _, want := range []string{"Counted since", "Requests in each hour", "Time of the upstream in each",
			"Bytes sent in each", `<g class="refused"><rect`, `<option value="2d" selected>`} {
			if status != 200 || !strings.Contains(section, want) {
				t.Errorf("%s: %d, no %q", path, status, want)
			}
		}
		if n := strings.Count(section, "<tr><th scope=\"row\">"); n != 48 {
			t.Errorf("%s: the table has %d rows", path, n)
		}
		if strings.Contains(section, "not counted") {
			t.Errorf("%s: a part was not counted", path)
		}
	}
	// A client that has sent requests for ten minutes only.
	r := traffic.New(s.console.Policy.Now().Add(-10 * time.Minute))
	old := s.console.Traffic
	s.console.Traffic = r
	defer func() { s.console.Traffic = old }()
	p := s.console.Policy
	passed := reports.OfCompletion(&httpguard.Completion{Status: 200})
	passed.Client = netip.MustParsePrefix("192.0.2.1/32")
	for i := range 600 {
		at := p.Now().Add(time.Duration(i-600) * time.Second)
		r.Passed(passed)
		r.Tick(at, p.Wall(at), traffic.Load{})
	}
	_, text := s.get("/client?client=192.0.2.1&span=1h")
	if n := strings.Count(text, `<td colspan="5">not counted</td>`); n < 47 || n > 50 ||
		!strings.Contains(text, `<rect class="unknown"`) {
		t.Errorf("%d minutes were not counted:\n%s", n, text)
	}
}
