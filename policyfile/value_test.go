package policyfile

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"3s": 3 * time.Second, "1h30m": 90 * time.Minute, "200ms": 200 * time.Millisecond, "31d": 31 * 24 * time.Hour,
		"1d1h1m1s1ms": 25*time.Hour + time.Minute + time.Second + time.Millisecond, "0s": 0,
		"1.5s":     1500 * time.Millisecond,
		"0.0005ms": 500 * time.Nanosecond, "30m1h": 90 * time.Minute, "9999999999999999d": maxDuration + 1,
		"36501d": maxDuration + 1,
		"1m1m":   2 * time.Minute, "600000ms": 10 * time.Minute,
	} {
		if got, ok := parseDuration(s); !ok || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "60", "s", "1x", "1 s", "-1s", "+1s", "1.s", ".5s", "1s1", "1us", "1e3s", "1M",
		"1S", "0x1s", "1..5s", "99999999999999999999s"} {
		if got, ok := parseDuration(s); ok {
			t.Errorf("parseDuration(%q) = %v, want none", s, got)
		}
	}
}

// A flag's value is read as in a policy, and an error has a hint.
func TestDurationsOfFlags(t *testing.T) {
	for s, want := range map[string]time.Duration{"2h": 2 * time.Hour, "7d": 168 * time.Hour, "0s": 0,
		"36500d": maxDuration} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"":              `a duration is needed, such as 10s or 1h30m, not ""; units are ms, s, m, h and d, joined: 1h30m`,
		"7":             `a duration is needed, such as 10s or 1h30m, not "7"; a unit is needed: 7s, 7m, 7h or 7d`,
		"-2h":           `a duration is needed, such as 10s or 1h30m, not "-2h"; units are ms, s, m, h and d, joined: 1h30m`,
		"2 hours":       `a duration is needed, such as 10s or 1h30m, not "2 hours"; did you mean 2h?`,
		"1w":            `a duration is needed, such as 10s or 1h30m, not "1w"; did you mean 7d?`,
		"36501d":        `36501d is longer than 36500d; `,
		"\x1b[2J\u202e": `a duration is needed, such as 10s or 1h30m, not "\x1b[2J\u202e"; units are ms, s, m, h and d, joined: 1h30m`,
	} {
		got, err := ParseDuration(s)
		var fault *DurationError
		if !errors.As(err, &fault) || got != 0 {
			t.Errorf("ParseDuration(%q) = %v, %v, want an error", s, got, err)
		} else if got := fault.Error() + "; " + fault.Hint(); got != want {
			t.Errorf("ParseDuration(%q): %s, want %s", s, got, want)
		}
	}
}

func TestParseLabel(t *testing.T) {
	longest := strings.Repeat("a", maxLabel)
	for s, want := range map[string]string{"good-partner": "good-partner", "VIP_2.0": "vip_2.0", "-": "-",
		longest: longest} {
		if got, err := ParseLabel(s); err != nil || got != want {
			t.Errorf("ParseLabel(%q) = %q, %v, want %q", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"":             `"" is not a label name; use up to 40 letters a to z, digits, dots, _ and -`,
		"Good Partner": `"Good Partner" is not a label name; did you mean "good-partner"?`,
		longest + "a": `"` + longest +
			`a" is longer than 40 letters; use up to 40 letters a to z, digits, dots, _ and -`,
		"a/b":      `"a/b" is not a label name; use up to 40 letters a to z, digits, dots, _ and -`,
		"\u212ael": "\"\u212ael\"" + ` is not a label name; use up to 40 letters a to z, digits, dots, _ and -`,
		"\x1b[2J":  `"\x1b[2J" is not a label name; use up to 40 letters a to z, digits, dots, _ and -`,
	} {
		got, err := ParseLabel(s)
		var fault *LabelError
		if !errors.As(err, &fault) || got != "" {
			t.Errorf("ParseLabel(%q) = %q, %v, want an error", s, got, err)
		} else if got := fault.Error() + "; " + fault.Hint(); got != want {
			t.Errorf("ParseLabel(%q): %s, want %s", s, got, want)
		}
	}
}

func TestFormattedDurationsAndSizesAreReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, int64(maxDuration/time.Millisecond)).Draw(t, "ms")) * time.Millisecond
		if got, ok := parseDuration(FormatDuration(d)); !ok || got != d {
			t.Fatalf("%v is written %s, read %v", d, FormatDuration(d), got)
		}
		n := rapid.Int64Min(0).Draw(t, "bytes")
		if got, ok := parseSize(FormatSize(n)); !ok || got != n {
			t.Fatalf("%d bytes are written %s, read %d", n, FormatSize(n), got)
		}
	})
	for d, want := range map[time.Duration]string{0: "0s", 1: "1ms", time.Minute: "1m", 24 * time.Hour: "24h",
		48 * time.Hour: "2d", 36 * time.Hour: "36h", 1<<63 - 1: "106751d23h47m16s854ms"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0B": 0, "1B": 1, "1kB": 1000, "500MB": 5e8, "1GB": 1e9, "1KiB": 1024, "64MiB": 64 << 20, "1GiB": 1 << 30,
		"1.5GB": 15e8, "0.5KiB": 512,
		"99999999999999999999B": 1<<63 - 1, "9999999999GiB": 1<<63 - 1,
	} {
		if got, ok := parseSize(s); !ok || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "1", "B", "1b", "1KB", "1mb", "-1B", "1.5B", "1 MB", "1.MB", ".5MB", "1e3B", "1TB"} {
		if got, ok := parseSize(s); ok {
			t.Errorf("parseSize(%q) = %d, want none", s, got)
		}
	}
}

func TestAddrSetHoldsPrefixesAndLists(t *testing.T) {
	f, err := Parse("site.yaml", []byte(`
lists: {office: [192.0.2.0/24, "::ffff:198.51.100.0/120"], v6: 2001:db8::/32, empty: []}
rules:
  - {name: a, match: {addr: [office, v6, 203.0.113.9, 10.1.2.3/8, empty, office]}, block: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	set := f.Policy.Rules[0].Match.Addr
	for s, want := range map[string]bool{
		"192.0.2.255": true, "192.0.3.0": false, "198.51.100.7": true, "2001:db8:ffff::1": true, "2001:db9::": false,
		"203.0.113.9": true, "203.0.113.8": false, "10.255.0.1": true, "::": false, "0.0.0.0": false,
	} {
		if got := set.Contains(netip.MustParseAddr(s)); got != want {
			t.Errorf("Contains(%s) = %v, want %v", s, got, want)
		}
	}
	addr := netip.MustParseAddr("203.0.113.8")
	if n := testing.AllocsPerRun(100, func() { set.Contains(addr) }); n != 0 {
		t.Errorf("%v allocations a look-up", n)
	}
	if got := set.(*AddrSet).String(); got != "list office, list v6, list empty, 203.0.113.9 or 10.0.0.0/8" {
		t.Errorf("String() = %q", got)
	}
}

func BenchmarkAddrSetContains(b *testing.B) {
	set := &AddrSet{}
	for i := range 10_000 {
		set.add(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 8), byte(i), 0, 0}), 24))
	}
	addr := netip.MustParseAddr("20.30.1.1")
	b.ReportAllocs()
	for b.Loop() {
		if set.Contains(addr) {
			b.Fatal("it is not in the set")
		}
	}
}

func TestLoadReportsFilesThatCannotBeRead(t *testing.T) {
	if _, err := Load("testdata/nowhere.yaml"); !errors.Is(err, fs.ErrNotExist) || Faults(err) != nil {
		t.Errorf("a missing file: %v, faults %v", err, Faults(err))
	}
	if _, err := Load("testdata"); err == nil || Faults(err) != nil {
		t.Errorf("a directory: %v, faults %v", err, Faults(err))
	}
}

func TestBodyFileIsRelativeToThePolicy(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slow.html": "<p>slow {wait}</p>", "big.html": strings.Repeat("x", maxBody+1),
		"site.yaml": "rules:\n" +
			"  - {name: a, limit: {requests: 600, per: 1m}, answer: {body_file: slow.html}}\n" +
			"  - {name: b, limit: {requests: 600, per: 1m}, answer: {body_file: " + filepath.Join(dir, "slow.html") +
			"}}\n",
		"big.yaml": "rules:\n  - {name: a, limit: {requests: 600, per: 1m}, answer: {body_file: big.html}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Load(filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Policy.Rules {
		if got := f.Policy.Rules[i].Answer.Body; got != "<p>slow {wait}</p>" {
			t.Errorf("body %d: %q", i, got)
		}
	}
	if _, err := Load(filepath.Join(dir, "big.yaml")); len(Faults(err)) != 1 {
		t.Errorf("a body of over %d bytes: %v", maxBody, err)
	}
}

func TestDefaultsOfAFile(t *testing.T) {
	f, err := Parse("site.yaml", []byte("rules: [{name: a, limit: {errors: 50, per: 1m}, ban: {after: 3, for: 30h}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Memory != 64<<20 || f.Grace != 0 || f.Header != "" || f.TLS != nil || f.TrustedProxies != nil {
		t.Errorf("defaults: %+v", f)
	}
	lim := f.Policy.Limits()[0]
	if !lim.Statuses.Has(499) || lim.Statuses.Has(500) || lim.By[0].Kind != fairshare.ByAddr {
		t.Errorf("default statuses and key: %+v", lim)
	}
}
