package clientaddr_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"fairshare/clientaddr"
)

// A vector is a case from another implementation, see testdata/README.md.
type vector struct {
	Test, Name string
	Args       struct {
		HeaderName    string
		Headers       http.Header
		RemoteAddr    string
		TrustedRanges []string
	}
	IPStr, Fwd, IP string
	Want           json.RawMessage
	WantErr        bool
}

// ours holds our results where they differ on purpose; "" means no client, or the
// proxy. All addresses are compared in
// the form of Canonical.
var ours = map[string]string{
	// An unreadable element ends our walk; the other library skips it.
	"TestRightmostNonPrivateStrategy/XFF: rightmost not desirable":       "",
	"TestRightmostNonPrivateStrategy/Forwarded: rightmost not desirable": "",
	// The other library trusts a peer without an address.
	"TestRightmostTrustedRangeStrategy/Peer unspecified IP: walks header as normal": "",
	// We refuse a zone without a name or on IPv4, a port that is not a number, and IPv4 in brackets.
	"Test_goodIPAddr/Empty zone":                      "",
	"Test_goodIPAddr/Bad port (is discarded)":         "",
	"Test_forwardedHeaderRFCDeviations/IPv4 brackets": "",
	// The other library parses it and refuses it a step later.
	"TestParseIPAddr/Zero address": "",
	// This network is for benchmarks; an operator with proxies in it lists it.
	"Test_isPrivateOrLocal/IPv4 RFC 2544 benchmarking": "false",
}

// Errors in the other library: "" is X-Forwarded-For here, and any header may hold one address.
var noFault = map[string]bool{
	"TestSingleIPHeaderStrategy/Error: empty header name":       true,
	"TestRightmostTrustedRangeStrategy/Error: bad header nanme": true,
}

func TestVectorsOfRealclientip(t *testing.T) {
	file, err := os.Open("testdata/realclientip.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cases := 0
	for lines := bufio.NewScanner(file); lines.Scan(); cases++ {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		id := v.Test + "/" + v.Name
		if noFault[id] {
			continue
		}
		t.Run(id, func(t *testing.T) {
			want, got := v.want(t), v.got(t)
			if differs, ok := ours[id]; ok {
				if differs == want {
					t.Error("listed as different, and is not")
				}
				want = differs
			}
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if cases != 72 {
		t.Errorf("%d cases", cases)
	}
}

// got is what we say, as a text.
func (v *vector) got(t *testing.T) string {
	resolve := func(peer, header string, headers http.Header, trusted ...string) string {
		res := newResolver(t, header, trusted...).Resolve(peer, headers)
		if res.Proxy || !res.Addr.IsValid() {
			return ""
		}
		return res.Addr.String()
	}
	const proxy = "203.0.113.77" // in none of the cases
	switch v.Test {
	case "TestRemoteAddrStrategy":
		return resolve(v.Args.RemoteAddr, "", nil)
	case "TestSingleIPHeaderStrategy":
		return resolve(proxy, v.Args.HeaderName, v.Args.Headers, proxy)
	case "TestRightmostNonPrivateStrategy":
		return resolve(proxy, v.Args.HeaderName, v.Args.Headers, proxy, "loopback", "private")
	case "TestRightmostTrustedRangeStrategy":
		return resolve(v.Args.RemoteAddr, v.Args.HeaderName, v.Args.Headers, append(v.Args.TrustedRanges, "unix")...)
	case "TestParseIPAddr", "Test_goodIPAddr":
		return resolve(proxy, "X-Real-IP", http.Header{"X-Real-Ip": {v.IPStr}}, proxy)
	case "Test_parseForwardedListItem":
		return resolve(proxy, "Forwarded", http.Header{"Forwarded": {v.Fwd}}, proxy)
	case "Test_isPrivateOrLocal":
		return strconv.FormatBool(newResolver(t, "", "loopback", "private").Trusts(netip.MustParseAddr(v.IP)))
	case "Test_forwardedHeaderRFCDeviations":
		return resolve(proxy, v.Args.HeaderName, v.Args.Headers, proxy)
	}
	t.Fatalf("no such test: %s", v.Test)
	return ""
}

// want returns the expected result of the vector, in our form.
func (v *vector) want(t *testing.T) string {
	if v.WantErr {
		return ""
	}
	var want string
	switch v.Test {
	case "TestParseIPAddr", "Test_goodIPAddr":
		var addr struct{ IP string }
		decode(t, v.Want, &addr)
		want = addr.IP
	case "Test_isPrivateOrLocal":
		return string(v.Want)
	case "Test_forwardedHeaderRFCDeviations": // all elements; we ask for the rightmost
		var all []string
		decode(t, v.Want, &all)
		want = all[len(all)-1]
	default:
		decode(t, v.Want, &want)
	}
	if want == "" {
		return ""
	}
	return clientaddr.Canonical(netip.MustParseAddr(want)).String()
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}
