package clientaddr_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

func TestParseProxiesReadsPrefixesAndAddresses(t *testing.T) {
	tests := []struct{ word, want string }{
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"10.1.2.3/8", "10.0.0.0/8"},
		{"192.0.2.1", "192.0.2.1/32"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"2001:db8::1", "2001:db8::1/128"},
		{"::1", "::1/128"},
		{"::ffff:192.0.2.1", "192.0.2.1/32"},
		{"::ffff:192.0.2.0/120", "192.0.2.0/24"},
		{"::ffff:0.0.0.0/96", "0.0.0.0/0"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"::/0", "::/0"},
	}
	for _, test := range tests {
		got, err := clientaddr.ParseProxies(test.word)
		if err != nil || got.Unix || !slices.Equal(got.Prefixes, []netip.Prefix{netip.MustParsePrefix(test.want)}) {
			t.Errorf("ParseProxies(%q) = %v, %v, want %s", test.word, got, err, test.want)
		}
	}
}

func TestParseProxiesReportsErrors(t *testing.T) {
	tests := []struct{ word, want string }{
		{"", "not a prefix"},
		{"cloudflair", "not a prefix"},
		{"Loopback", "not a prefix"},
		{"10.0.0.0-10.0.0.9", "not a prefix"},
		{"10.0.0.*", "not a prefix"},
		{"10.0.0.1:80", "not a prefix"},
		{"[::1]", "not a prefix"},
		{"010.0.0.0/8", "not a prefix"},
		{"a/8", "not a prefix"},
		{"10.0.0.0/33", "/33 is not a valid prefix length"},
		{"10.0.0.0/", "/ is not a valid prefix length"},
		{"10.0.0.0/255.0.0.0", "/255.0.0.0 is not a valid prefix length"},
		{"10.0.0.0/08", "/08 is not a valid prefix length"},
		{"2001:db8::/129", "/129 is not a valid prefix length"},
		{"::ffff:10.0.0.0/8", "at least /96"},
		{"fe80::1%eth0", "zone"},
		{"fe80::%eth0/64", "zone"},
		{"0.0.0.0", "a proxy cannot have this address"},
		{"::", "a proxy cannot have this address"},
		{"::ffff:0.0.0.0", "a proxy cannot have this address"},
	}
	for _, test := range tests {
		got, err := clientaddr.ParseProxies(test.word)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseProxies(%q) = %v, %v, want %q", test.word, got, err, test.want)
		}
	}
}

func TestProxyNamesHoldTheirAddresses(t *testing.T) {
	tests := []struct{ name, in, out string }{
		{"loopback", "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1", "10.0.0.1 128.0.0.1 ::2"},
		{"private", "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.1.1 fd00::1 fe80::1%eth0 ::ffff:10.0.0.1",
			"127.0.0.1 ::1 172.32.0.1 192.169.0.1 100.64.0.1 198.18.0.1 192.0.2.1 2001:db8::1 fec0::1 ff02::1"},
		{"cloudflare", "173.245.48.1 104.16.0.1 2400:cb00::1 2606:4700::1111", "1.1.1.1 192.0.2.1 2001:db8::1"},
		{"fastly", "151.101.1.57 199.232.0.1 2a04:4e42::1", "192.0.2.1 2001:db8::1 104.16.0.1"},
		{"cloudfront", "130.176.0.1 15.158.27.206 2600:9000:1000::1", "192.0.2.1 2001:db8::1 104.16.0.1 52.84.0.1"},
		{"unix", "", "127.0.0.1 ::1 0.0.0.0 192.0.2.1"},
	}
	for _, test := range tests {
		r := newResolver(t, "", test.name)
		for _, s := range strings.Fields(test.in) {
			if !r.Trusts(addr(s)) {
				t.Errorf("%s does not hold %s", test.name, s)
			}
		}
		for _, s := range strings.Fields(test.out) {
			if r.Trusts(addr(s)) {
				t.Errorf("%s holds %s", test.name, s)
			}
		}
		if !slices.Contains(clientaddr.ProxyNames(), test.name) {
			t.Errorf("Names lacks %s", test.name)
		}
	}
}

// Every list names its source and date, and holds public prefixes only.
func TestRangeFilesNameTheirSource(t *testing.T) {
	files, err := filepath.Glob("ranges/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("ranges: %v, %v", files, err)
	}
	head := regexp.MustCompile(
		`^# .*https://\S+\n# as of \d+ \w+ \d{4} in \S+ at [0-9a-f]{12}, ([A-Z]\S+|facts alone)\n`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !head.Match(text) {
			t.Errorf("%s does not say where it is from", file)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		proxies, err := clientaddr.ParseProxies(name)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n") - strings.Count(string(text),
			"#"); lines != len(proxies.Prefixes) {
			t.Errorf("%s: %d lines, %d prefixes", file, lines, len(proxies.Prefixes))
		}
		for _, prefix := range proxies.Prefixes {
			a := prefix.Addr()
			if prefix != prefix.Masked() || prefix.Bits() < 12 || a.IsPrivate() || a.IsLoopback() ||
				a.IsLinkLocalUnicast() {
				t.Errorf("%s: odd prefix %v", file, prefix)
			}
		}
	}
}
