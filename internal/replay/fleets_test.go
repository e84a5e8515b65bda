package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
)

// browsers are user agents of people's browsers, and of swarms that imitate them.
var browsers = []string{
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
	"Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
	"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36",
}

// A logWriter makes an access log in the order of time.
type logWriter struct {
	lines  []string // each begins with its time in seconds, in 20 digits
	random *rand.Rand
}

func newLogWriter() *logWriter { return &logWriter{random: rand.New(rand.NewPCG(3, 4))} }

func (l *logWriter) add(at time.Duration, addr netip.Addr, path, referer, agent string) {
	when := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC).Add(at).Format("02/Jan/2006:15:04:05 -0700")
	l.lines = append(l.lines, fmt.Sprintf("%020d%s - - [%s] \"GET %s HTTP/1.1\" 200 5120 \"%s\" \"%s\"", int64(at), addr,
		when, path, referer, agent))
}

// read adds a reader who opens pages and fetches the assets of the first.
func (l *logWriter) read(at time.Duration, addr netip.Addr, pages int, entry, referer, agent string) {
	page := entry
	for n := range pages {
		l.add(at, addr, page, referer, agent)
		for i := range 4 {
			if n == 0 {
				l.add(at+time.Duration(i)*300*time.Millisecond, addr, fmt.Sprintf("/theme/%d.css", i),
					"https://www.example"+page, agent)
			}
		}
		referer, page = "https://www.example"+page, fmt.Sprintf("/item/%d", l.random.IntN(2000))
		at += time.Duration(5+l.random.IntN(40)) * time.Second
	}
}

// swarm adds 12,000 requests of 4,000 addresses in an hour, and thirty readers.
func (l *logWriter) swarm() {
	for i := range 30 {
		l.read(time.Duration(i)*2*time.Minute, netip.AddrFrom4([4]byte{81, byte(i), 3, 9}), 25, "/",
			"https://search.example/", browsers[i%len(browsers)])
	}
	for i := range 4000 {
		addr := netip.AddrFrom4([4]byte{byte(20 + i%7), byte(i), byte(i >> 8), byte(1 + i%250)})
		at := time.Duration(l.random.Int64N(int64(time.Hour)))
		for n := range 3 {
			l.add(at+time.Duration(n)*9*time.Second, addr, fmt.Sprintf("/item/%d", l.random.IntN(90_000)), "-",
				browsers[i%len(browsers)])
		}
	}
}

// crowd adds 4,000 people who follow a link from a popular site within ten minutes.
func (l *logWriter) crowd() {
	for i := range 30 {
		l.read(time.Duration(i)*2*time.Minute, netip.AddrFrom4([4]byte{81, byte(i), 3, 9}), 25, "/",
			"https://search.example/", browsers[i%len(browsers)])
	}
	for i := range 4000 {
		addr := netip.AddrFrom4([4]byte{byte(20 + i%7), byte(i), byte(i >> 8), byte(1 + i%250)})
		l.read(30*time.Minute+time.Duration(l.random.Int64N(int64(10*time.Minute))), addr, 1+i%3, "/news/launch",
			"https://popular.example/", browsers[i%len(browsers)])
	}
}

// write writes the log into a file.
func (l *logWriter) write(t testing.TB) string {
	slices.Sort(l.lines)
	for i := range l.lines {
		l.lines[i] = l.lines[i][20:]
	}
	if name := os.Getenv("FLEETS_LOG"); name != "" { // for a look at the report of a whole command
		if err := os.WriteFile(name, []byte(strings.Join(l.lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return writeLines(t, "access.log", l.lines...)
}

// A swarm with the user agents of the readers, in the same hour: the report must name it.
func TestReportOfASwarm(t *testing.T) {
	l := newLogWriter()
	l.swarm()
	report := replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{l.write(t)}, Owner: func(addr netip.Addr) fairshare.Owner {
			if addr.As4()[0] < 27 {
				return fairshare.Owner{ASN: 64500, Name: "Example Hosting", Type: "hosting"}
			}
			return fairshare.Owner{ASN: 64501, Name: "Example Provider", Type: "isp"}
		}})
	var b bytes.Buffer
	if err := report.WriteText(&b, Style{Width: 100}); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
	want := Assetless{Known: true, Clients: 4000, Networks: 4000, Requests: 12_000, Browsers: 4030, Fetched: 30}
	if report.Assetless != want {
		t.Errorf("got %+v, want %+v", report.Assetless, want)
	}
	if len(report.Owners) != 2 || report.Owners[0].Clients != 4000 || report.Owners[0].Requests != 12_000 {
		t.Errorf("owners: %+v", report.Owners)
	}
	var requests int64
	for _, f := range report.BrowserFleets {
		requests += f.Requests
	}
	if requests < 10_000 {
		t.Errorf("the fleets have %d requests, want most of 12,000: %+v", requests, report.BrowserFleets)
	}
}

func TestFlashCrowdIsNoFleet(t *testing.T) {
	l := newLogWriter()
	l.crowd()
	report := replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{l.write(t)}})
	if len(report.BrowserFleets) != 0 || report.Assetless.Clients != 0 || report.Assetless.Fetched != 4030 {
		t.Errorf("fleets %+v, browsers without assets %+v", report.BrowserFleets, report.Assetless)
	}
}
