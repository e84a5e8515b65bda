package lookup

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/lookup/lookuptest"

	"golang.org/x/net/dns/dnsmessage"
)

const testKey = "abcdefghijkl"

// wellListed are lists that pass their self-test.
func wellListed(s *lookuptest.Server) map[string]List {
	s.List("bl.example.", "127.0.0.2", "127.0.0.2")
	s.HTTPBL(testKey, "dnsbl.httpbl.org.", "127.1.1.1", "127.1.1.1")
	return map[string]List{"bl": {Zone: "BL.example."}, "honeypot": {Key: testKey}}
}

func TestListIsPrintedWithoutItsKey(t *testing.T) {
	o := Options{Lists: map[string]List{"honeypot": {Key: testKey}, "bl": {Zone: "bl.example"}}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if got := fmt.Sprintf(format, o.Lists); strings.Contains(got, testKey) || !strings.Contains(got, "bl.example") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

func TestListed(t *testing.T) {
	s := lookuptest.Start(t)
	var notes notebook
	r := open(t, Options{Server: s.Addr(), Lists: wellListed(s), Log: notes.log})
	s.List("bl.example.", "192.0.2.1", "127.0.0.3", "127.0.0.10")
	s.List("bl.example.", "2001:db8::1", "127.0.0.4")
	s.List("bl.example.", "192.0.2.3", "127.255.255.254")
	s.List("bl.example.", "192.0.2.4", "127.255.255.254", "127.0.0.9")
	s.List("bl.example.", "192.0.2.5", "198.51.100.1") // a parked zone
	s.HTTPBL(testKey, "dnsbl.httpbl.org.", "127.9.1.2", "127.3.5.1")
	s.HTTPBL(testKey, "dnsbl.httpbl.org.", "203.0.113.9", "127.3.5.1")
	s.HTTPBL(testKey, "dnsbl.httpbl.org.", "203.0.113.10", "126.3.5.1")
	s.Set("7.2.0.192.bl.example", dnsmessage.TypeA, lookuptest.Answer{Code: dnsmessage.RCodeServerFailure})
	for _, c := range []struct {
		list, addr string
		want       []netip.Addr
		known      bool
	}{
		{"bl", "192.0.2.1", addrs("127.0.0.3", "127.0.0.10"), true},
		{"bl", "::ffff:192.0.2.1", addrs("127.0.0.3", "127.0.0.10"), true},
		{"bl", "192.0.2.2", nil, true},
		{"bl", "2001:db8::1", addrs("127.0.0.4"), true},
		{"bl", "192.0.2.3", nil, false},
		{"bl", "192.0.2.4", addrs("127.0.0.9"), true},
		{"bl", "192.0.2.5", nil, false},
		{"bl", "192.0.2.7", nil, false},
		{"honeypot", "203.0.113.9", addrs("127.3.5.1"), true},
		{"honeypot", "203.0.113.10", nil, false},
		{"honeypot", "203.0.113.11", nil, true},
		{"honeypot", "2001:db8::1", nil, false},
		{"honeypot", "127.9.1.2", nil, false},
		{"unheard of", "192.0.2.1", nil, false},
	} {
		addr := netip.MustParseAddr(c.addr)
		codes, known := r.WaitListed(deadline(t), c.list, addr)
		if !slices.Equal(codes, c.want) || known != c.known {
			t.Errorf("%s, %s: %v, %v, want %v, %v", c.list, c.addr, codes, known, c.want, c.known)
		}
		if got := r.Listed(c.list, addr); !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: Listed %v, want %v", c.list, c.addr, got, c.want)
		}
	}
	if got := notes.all(); len(got) != 0 {
		t.Errorf("logged: %q", got)
	}
}

// No list is asked about an address that is not public.
func TestPrivateAddressesAreNotSentToLists(t *testing.T) {
	s := lookuptest.Start(t)
	r := open(t, Options{Server: s.Addr(), Lists: wellListed(s)})
	r.WaitListed(deadline(t), "bl", netip.MustParseAddr("192.0.2.1"))
	r.WaitListed(deadline(t), "honeypot", netip.MustParseAddr("192.0.2.1"))
	before := s.Questions()
	for _, text := range []string{
		"127.0.0.1", "127.0.0.2", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1", "0.0.0.0",
		"0.1.2.3",
		"224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1",
		"::ffff:10.0.0.1", "::ffff:127.0.0.1",
	} {
		for _, list := range []string{"bl", "honeypot"} {
			if codes, known := r.WaitListed(deadline(t), list, netip.MustParseAddr(text)); known || codes != nil {
				t.Errorf("%s: %v", text, codes)
			}
			if codes := r.Listed(list, netip.MustParseAddr(text)); codes != nil {
				t.Errorf("%s: %v", text, codes)
			}
		}
	}
	r.Listed("bl", netip.Addr{})
	r.Close()
	if n := s.Questions() - before; n != 0 {
		t.Errorf("%d questions", n)
	}
}

// A fault from the self-test is logged once, and never with the key.
func TestSelfTest(t *testing.T) {
	victim := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name  string
		list  List
		set   func(s *lookuptest.Server)
		holds bool
		said  string
	}{
		{"in order", List{Zone: "bl.example"}, func(s *lookuptest.Server) {
			s.List("bl.example.", "127.0.0.2",
				"127.0.0.2")
		}, true, ""},
		{"no test entry", List{Zone: "bl.example"}, func(s *lookuptest.Server) {}, true,
			"DNS list l does not list its test entry 127.0.0.2: the zone may be wrong or gone"},
		{"everything is listed", List{Zone: "bl.example"}, func(s *lookuptest.Server) {
			s.SetOthers(lookuptest.Answer{Addrs: addrs("127.0.0.2")})
		}, false, "DNS list l lists 127.0.0.1, and so all addresses: its answers are ignored"},
		{"our questions are refused", List{Zone: "bl.example"}, func(s *lookuptest.Server) {
			s.List("bl.example.", "127.0.0.2", "127.255.255.254")
			s.List("bl.example.", "127.0.0.1", "127.255.255.254")
		}, true, "DNS list l could not be tested: it refuses our questions"},
		{"a parked zone", List{Zone: "bl.example"}, func(s *lookuptest.Server) {
			s.List("bl.example.", "127.0.0.1", "198.51.100.1")
		}, true, "DNS list l could not be tested: its answer is not in 127.0.0.0/8"},
		{"SERVFAIL", List{Zone: "bl.example"}, func(s *lookuptest.Server) {
			s.Set("1.0.0.127.bl.example", dnsmessage.TypeA, lookuptest.Answer{Code: dnsmessage.RCodeServerFailure})
		}, true, "DNS list l could not be tested: the server answers SERVFAIL"},
		{"http:BL in order", List{Zone: "bl.example", Key: testKey}, func(s *lookuptest.Server) {
			s.HTTPBL(testKey, "bl.example.", "127.1.1.1", "127.1.1.1")
			s.HTTPBL(testKey, "bl.example.", victim.String(), "127.0.0.9")
		}, true, ""},
		{"http:BL with a wrong key", List{Zone: "bl.example", Key: testKey}, func(s *lookuptest.Server) {
			s.HTTPBL(testKey, "bl.example.", victim.String(), "127.0.0.9")
		}, true, "DNS list l does not list its test entry 127.1.1.1: the access key may be wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := lookuptest.Start(t)
			s.List("bl.example.", victim.String(), "127.0.0.9")
			c.set(s)
			var notes notebook
			r := open(t, Options{Server: s.Addr(), Lists: map[string]List{"l": c.list}, Log: notes.log})
			codes, known := r.WaitListed(deadline(t), "l", victim)
			if known != c.holds || c.holds != slices.Equal(codes, addrs("127.0.0.9")) {
				t.Errorf("%v, %v, want it to hold: %v", codes, known, c.holds)
			}
			if got := r.Listed("l", victim); (len(got) > 0) != c.holds {
				t.Errorf("Listed: %v", got)
			}
			got := notes.all()
			if c.said == "" && len(got) != 0 || c.said != "" &&
				(len(got) != 1 || !strings.HasPrefix(got[0], c.said)) ||
				strings.Contains(strings.Join(got, ""), testKey) {
				t.Errorf("logged: %q, want %q", got, c.said)
			}
		})
	}
}

// A list that starts to list all addresses is ignored from its next test on, until a test passes.
func TestListThatStartsToListEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, nil)
		m.answers["2.0.0.127.list.example."] = addrs("127.0.0.2")
		m.answers["1.2.0.192.list.example."] = addrs("127.0.0.5")
		var notes notebook
		r := open(t, Options{query: m.query, Lists: map[string]List{"l": {Zone: "list.example"}}, Log: notes.log})
		defer r.Close()
		addr := netip.MustParseAddr("192.0.2.1")
		want := func(holds bool) {
			t.Helper()
			r.Listed("l", addr)
			synctest.Wait()
			r.Listed("l", addr)
			synctest.Wait()
			if got := r.Listed("l", addr); (len(got) > 0) != holds {
				t.Errorf("%v: %v, want it to hold: %v", time.Now(), got, holds)
			}
		}
		set := func(codes []netip.Addr) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.answers["1.0.0.127.list.example."] = codes
		}
		want(true)
		set(addrs("127.0.0.2"))
		want(true)
		time.Sleep(61 * time.Minute)
		want(false)
		m.kill(true)
		time.Sleep(11 * time.Minute)
		want(false)
		time.Sleep(10 * time.Second)
		want(false) // a missing answer does not clear it
		m.kill(false)
		set(nil)
		time.Sleep(11 * time.Minute)
		want(true)
		got := notes.all()
		got = slices.DeleteFunc(got, func(s string) bool { return strings.Contains(s, "DNS server") })
		if len(got) != 3 || !strings.Contains(got[0], "lists 127.0.0.1, and so all addresses") ||
			!strings.Contains(got[1], "could not be tested") || got[2] != "DNS list l works again" {
			t.Errorf("logged: %q", got)
		}
	})
}

// A list whose server does not answer is logged without its key, and tested again.
func TestSilentListIsTestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, nil)
		m.answers[testKey+".1.1.1.127.list.example."] = addrs("127.1.1.1")
		m.answers[testKey+".1.2.0.192.list.example."] = addrs("127.1.40.4")
		m.kill(true)
		var notes notebook
		r := open(t, Options{query: m.query, Lists: map[string]List{"l": {Zone: "list.example", Key: testKey}},
			Log: notes.log})
		defer r.Close()
		addr := netip.MustParseAddr("192.0.2.1")
		if codes, known := r.WaitListed(t.Context(), "l", addr); known || codes != nil {
			t.Errorf("%v, %v", codes, known)
		}
		m.kill(false)
		time.Sleep(2 * time.Minute)
		r.Listed("l", addr)
		synctest.Wait()
		if codes := r.Listed("l", addr); !slices.Equal(codes, addrs("127.1.40.4")) {
			t.Errorf("Listed: %v", codes)
		}
		got := strings.Join(notes.all(), "\n")
		for _, want := range []string{"DNS list l could not be tested: nothing in 2s", "DNS list l works again",
			"does not answer (nothing in 2s)", "answers again"} {
			if strings.Count(got, want) != 1 {
				t.Errorf("logged: %s\nwant once: %s", got, want)
			}
		}
		if strings.Contains(got, testKey) {
			t.Errorf("the log contains the key: %s", got)
		}
	})
}

// An answer of a list is valid for an hour, even if the server does not answer.
func TestListingsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel(t, nil)
		m.answers["1.2.0.192.list.example."] = addrs("127.0.0.5")
		r := open(t, Options{query: m.query, Lists: map[string]List{"l": {Zone: "list.example"}}})
		defer r.Close()
		addr := netip.MustParseAddr("192.0.2.1")
		if codes, known := r.WaitListed(context.Background(), "l", addr); !known || len(codes) != 1 {
			t.Fatalf("%v, %v", codes, known)
		}
		m.kill(true)
		for range 59 {
			if len(r.Listed("l", addr)) != 1 {
				t.Fatal("forgotten")
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Minute)
		if codes := r.Listed("l", addr); codes != nil {
			t.Errorf("held: %v", codes)
		}
	})
}
