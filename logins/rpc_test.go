package logins

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"fairshare"
)

func fault(code string) string {
	return "<value><struct>\n<member><name>faultCode</name><value><int>" + code + "</int></value></member>\n" +
		"<member><name>faultString</name><value><string>no</string></value></member></struct></value>"
}

func TestFaultsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		want         int
	}{
		{"a wrong password", "<methodResponse><fault>" + fault("403") + "</fault></methodResponse>", 1},
		{"three calls of five", fault("403") + "<value>ok</value>" + fault("403") + fault("-32601") + fault("403"), 3},
		{"another integer", strings.ReplaceAll(fault("403"), "int>", "i4>"), 1},
		{"spaces", strings.ReplaceAll(fault("403"), "<value>", "\n\t <value>\r\n"), 1},
		{"a pingback", fault("16") + fault("0") + fault("48"), 0},
		{"no such method", fault("-32601"), 0},
		{"logged in, and not allowed", fault("401"), 0},
		{"another application", fault("801"), 1},
		{"the name without a code", "faultCode" + strings.Repeat(" ", 500) + "403", 0},
		{"a page about it", "faultCode is 403, says the faultfaultCode>403<", 2},
		{"none", "<methodResponse><params/></methodResponse>", 0},
	} {
		for _, piece := range []int{1, 2, 7, 1 << 20} {
			var f Faults
			for rest := c.answer; rest != ""; {
				n := min(piece, len(rest))
				f.Add([]byte(rest[:n]))
				rest = rest[n:]
			}
			if f.Denied != c.want {
				t.Errorf("%s, in pieces of %d bytes: %d, want %d", c.name, piece, f.Denied, c.want)
			}
		}
	}
}

// The faults of an answer count, whatever its length is.
func TestFaultsDecideAboutXMLRPC(t *testing.T) {
	for _, c := range []struct {
		bytes  int64
		faults int
		want   Result
	}{{50_000, 1, Failed}, {50_000, 0, Unknown}, {180, 0, Unknown}, {180, 3, Failed}} {
		_, _, got := send(New(Options{}), begin, "192.0.2.1", "POST", "/xmlrpc.php", Answer{Status: 200, Live: true,
			Bytes: c.bytes, Calls: &Faults{Denied: c.faults, Any: c.faults > 0}})
		if got != c.want {
			t.Errorf("%d bytes, %d faults: %v, want %v", c.bytes, c.faults, got, c.want)
		}
	}
}

func TestManyCallsOfUnknownClientsAreInExcess(t *testing.T) {
	calls := func(n int) []byte {
		return []byte("<methodCall><methodName>system.multicall</methodName><params><param><value><array><data>" +
			strings.Repeat("<value><struct><member><name>&#109;ethodName</name></member></struct></value>", n) +
			"</data></array></value></param></params></methodCall>")
	}
	for _, c := range []struct {
		name, target string
		body         []byte
		whole, known bool
		want         bool
	}{
		{"one call", "/xmlrpc.php", calls(1), true, false, false},
		{"100 calls", "/xmlrpc.php", calls(100), true, false, true},
		{"100 calls of a known client", "/xmlrpc.php", calls(100), true, true, false},
		{"a body that is too long", "/xmlrpc.php", calls(1), false, false, true},
		{"a long body of a known client", "/xmlrpc.php", calls(1), false, true, false},
		{"another encoding", "/xmlrpc.php", []byte("<\x00s\x00t\x00r\x00"), true, false, true},
		{"a login", "/wp-login.php", calls(100), true, false, false},
	} {
		w := New(Options{})
		if c.known {
			send(w, begin, "192.0.2.1", "POST", "/wp-login.php", Answer{Status: 302})
		}
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST"}
		req.SetTarget(c.target)
		if got := TakesCalls(&req); got != (c.target == "/xmlrpc.php") {
			t.Errorf("%s: TakesCalls %v", c.name, got)
		}
		w.Arrived(&req, nil).Called(&req, c.body, c.whole)
		if req.Excess != c.want {
			t.Errorf("%s: excess %v, want %v", c.name, req.Excess, c.want)
		}
	}
}

func FuzzFaults(f *testing.F) {
	f.Add([]byte(fault("403")), 3)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var whole, parts Faults
		whole.Add(data)
		at = min(max(at, 0), len(data))
		parts.Add(data[:at])
		parts.Add(data[at:])
		if whole != parts {
			t.Error(fmt.Sprint(whole, parts))
		}
	})
}

// A call that needs the right password proves a login if it has no fault.
func TestAppsThatUseXMLRPCBecomeKnown(t *testing.T) {
	call := func(method string) string {
		return `<?xml version="1.0"?><methodCall><methodName>` + method + `</methodName><params/></methodCall>`
	}
	const target, done = "/xmlrpc.php", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<methodResponse>\n <params>"
	for _, c := range []struct {
		name, target, answer string
		want                 Result
	}{
		{"a call with a password", target, done, Succeeded},
		{"a short answer", target, "<methodResponse/>", Succeeded},
		{"a fault", target, done + fault("801"), Failed},
		{"a description of the interface", "/xmlrpc.php?rsd", "<?xml version=\"1.0\"?><rsd>", Unknown},
		{"a page for every path", target, "<!doctype html>", Unknown},
		{"nothing", target, "", Unknown},
		{"a page that repeats its query", "/xmlrpc.php?<methodResponse>", done, Unknown},
		{"the page of another path", "/about/xmlrpc.php/..", done, Unknown},
	} {
		w := New(Options{})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST"}
		req.SetTarget(c.target)
		a := w.Arrived(&req, nil)
		a.Called(&req, []byte(call("wp.getUsersBlogs")), true)
		a.Passed()
		var faults Faults
		for _, part := range []string{c.answer[:len(c.answer)/2], c.answer[len(c.answer)/2:]} {
			faults.Add([]byte(part))
		}
		got := a.Answered(&Answer{Time: begin, Status: 200, Live: true, Bytes: 500, Calls: &faults})
		if got != c.want || w.HasLoggedIn(&req) != (got == Succeeded) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name, body string
		any, whole bool
		want       Result
	}{
		{"a call with a password", call("wp.getUsersBlogs"), false, true, Succeeded},
		{"another one", "\n<methodCall>\n <methodName> metaWeblog.newPost </methodName></methodCall>", false, true,
			Succeeded},
		{"a fault", call("wp.getUsersBlogs"), true, true, Unknown},
		{"a call without a password", call("system.listMethods"), false, true, Unknown},
		{"several calls", call("system.multicall"), false, true, Unknown},
		{"a comment before", "<!-- " + call("wp.getUsersBlogs") + " -->" + call("system.listMethods"), false, true,
			Unknown},
		{"two methods", "<methodCall><methodName>wp.x</methodName><methodName>system.listMethods</methodName>", false,
			true, Unknown},
		{"a body that goes on", call("wp.getUsersBlogs"), false, false, Unknown},
	} {
		w := New(Options{})
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "POST"}
		req.SetTarget("/xmlrpc.php")
		a := w.Arrived(&req, nil)
		a.Called(&req, []byte(c.body), c.whole)
		a.Passed()
		faults := &Faults{}
		faults.Add([]byte(done))
		faults.Any = c.any
		got := a.Answered(&Answer{Time: begin, Status: 200, Live: true, Bytes: 500, Calls: faults})
		if got != c.want || w.HasLoggedIn(&req) != (got == Succeeded) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
