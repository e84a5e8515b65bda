package census

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairshare"
)

// banForErrors records a request that starts a ban by a limit of errors.
func (t *traffic) banForErrors(a netip.Addr, method string) {
	t.Refused(&fairshare.Request{Addr: a, Method: method, UserAgent: "curl/8.1"}, errorsBan(), false)
}

func errorsBan() *fairshare.Finding {
	limit := &fairshare.Limit{Resource: fairshare.Errors, N: 12, Window: 10 * time.Minute}
	return &fairshare.Finding{Action: fairshare.Refuse, Rule: &fairshare.Rule{Name: "dead links", Limit: limit},
		Limit: limit, Ban: fairshare.BanStarted}
}

func checkerLine(at, client string) string {
	return at + " " + client +
		` looks like a link checker (HEAD requests that met errors) and is banned; if it is yours: fairshare allow ` +
		client + ` --reason "link checker"`
}

// A link checker is reported once, and again only after an hour.
func TestLinkCheckerIsReportedOnceAnHour(t *testing.T) {
	tr := newTraffic(&fairshare.Policy{Rules: policyOf(false).Rules[:1]})
	tr.saw(0, 1000)
	tr.banForErrors(addr(1), "HEAD")
	tr.banForErrors(addr(1), "HEAD")
	tr.wait(5 * time.Second)
	for range 11 {
		tr.wait(5 * time.Minute)
		tr.banForErrors(addr(1), "HEAD")
	}
	tr.banForErrors(netip.MustParseAddr("2001:db8::1"), "HEAD")
	tr.wait(5 * time.Second)
	tr.banForErrors(netip.MustParseAddr("2001:db8::2"), "HEAD") // the same client
	tr.wait(6 * time.Minute)
	tr.banForErrors(addr(1), "HEAD")
	tr.wait(5 * time.Second)
	compare(t, "lines", tr.lines, []string{
		checkerLine("5s", "10.0.0.1"), checkerLine("55m10s", "2001:db8::/64"),
		`1h0m5s summary, the last hour: 1,000 requests; 15 requests of 2 clients (0.2 % of about 999) were refused or blocked; ` +
			`none of these clients looks like a person; all by rule "dead links"; 15 bans started`,
		checkerLine("1h1m15s", "10.0.0.1"),
	})
}

func TestOtherRefusalsAreNotLinkCheckers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fairshare.Request, *fairshare.Finding)
		dry    bool
	}{
		{"GET", func(r *fairshare.Request, _ *fairshare.Finding) { r.Method = "GET" }, false},
		{"POST", func(r *fairshare.Request, _ *fairshare.Finding) { r.Method = "POST" }, false},
		{"no ban", func(_ *fairshare.Request, f *fairshare.Finding) { f.Ban = fairshare.NotBanned }, false},
		{"a ban in force", func(_ *fairshare.Request, f *fairshare.Finding) {
			f.Ban, f.Limit = fairshare.BanInForce,
				nil
		}, false},
		{"a limit of requests", func(_ *fairshare.Request, f *fairshare.Finding) {
			f.Limit = &fairshare.Limit{Resource: fairshare.Requests}
		}, false},
		{"a provisional client", func(r *fairshare.Request, _ *fairshare.Finding) { r.Via = addr(9) }, false},
		{"no address", func(r *fairshare.Request, _ *fairshare.Finding) { r.Addr = netip.Addr{} }, false},
		{"dry run", func(*fairshare.Request, *fairshare.Finding) {}, true},
	} {
		tr := newTraffic(policyOf(false))
		tr.saw(0, 1000)
		req, found := &fairshare.Request{Addr: addr(1), Method: "HEAD"}, errorsBan()
		c.change(req, found)
		tr.Refused(req, found, c.dry)
		tr.wait(5 * time.Second)
		compare(t, c.name, tr.lines, nil)
	}
}

// If many clients start bans at once, few lines are logged in an hour.
func TestReportsOfLinkCheckersAreBounded(t *testing.T) {
	var c checkers
	s := newTraffic(policyOf(false)).state.Load()
	lines := 0
	for minute := range 60 {
		var all sync.WaitGroup
		for part := range 4 {
			all.Go(func() {
				for n := range 1000 {
					c.refused(refusal(&fairshare.Request{Addr: addr(minute*4000 + part*1000 + n), Method: "HEAD"},
						errorsBan(), false), s)
				}
			})
		}
		all.Wait()
		lines += len(c.lines(start.Add(time.Duration(minute) * time.Minute)))
	}
	if lines != mostCheckers {
		t.Errorf("%d lines in an hour, want %d", lines, mostCheckers)
	}
	c.lines(start.Add(time.Hour))
	c.refused(refusal(&fairshare.Request{Addr: addr(7), Method: "HEAD"}, errorsBan(), false), s)
	if got := len(c.lines(start.Add(61 * time.Minute))); got != 1 {
		t.Errorf("an hour later %d clients are reported, want 1", got)
	}
}
