package sessions_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"fairshare/internal/sessions"
)

const (
	here  = "192.0.2.1"
	near  = "192.0.2.200"
	there = "198.51.100.1"
)

func id(said string) string {
	said, _, _ = strings.Cut(said, " ")
	return strings.TrimPrefix(said, "id=")
}

// Two requests of a crawler share a session, unless a request between them ends it or the second
// comes from another client.
func TestWhichRequestsShareASession(t *testing.T) {
	usual := testRequest{agent: "known", client: here}
	for _, test := range []struct {
		name          string
		first, second testRequest
		between       *testRequest
		shares        bool
	}{
		{"the same", usual, usual, nil, true},
		{"HEAD", usual, testRequest{agent: "known", client: here, method: "HEAD"}, nil, true},
		{"same network", usual, testRequest{agent: "known", client: near}, nil, true},
		{"another network", usual, testRequest{agent: "known", client: there}, nil, false},
		{"an IPv6 network", testRequest{agent: "known", client: "2001:db8:1:2::1"},
			testRequest{agent: "known", client: "2001:db8:1:3::9"}, nil, true},
		{"another IPv6 network", testRequest{agent: "known", client: "2001:db8:1:2::1"},
			testRequest{agent: "known", client: "2001:db8:2:2::1"}, nil, false},
		{"IPv4 in IPv6", usual, testRequest{agent: "known", client: "::ffff:192.0.2.9"}, nil, true},
		{"unknown address", testRequest{agent: "known"}, testRequest{agent: "known"}, nil, false},
		{"another bot", usual, testRequest{agent: "forged", client: here}, nil, false},
		{"forged, and not yet checked", testRequest{agent: "forged", client: here},
			testRequest{agent: "pending", client: near}, nil, true},
		{"verified, another network", testRequest{agent: "verified", client: here},
			testRequest{agent: "verified", client: there}, nil, true},
		{"verified and forged", testRequest{agent: "verified", client: here},
			testRequest{agent: "forged", client: here}, nil, false},
		{"pending, then verified", testRequest{agent: "pending", client: here},
			testRequest{agent: "verified", client: here}, nil, false},
		{"user-triggered", testRequest{agent: "steered", client: here}, testRequest{agent: "steered", client: here},
			nil, false},
		{"forged user-triggered", testRequest{agent: "feigned", client: here},
			testRequest{agent: "feigned", client: near}, nil, true},
		{"a person", testRequest{agent: "person", client: here}, testRequest{agent: "person", client: here}, nil,
			false},
		{"a person, then a bot", testRequest{agent: "person", client: here}, usual, nil, false},
		{"a bot, then a person", usual, testRequest{agent: "person", client: here}, nil, false},
		{"another site", testRequest{agent: "known", client: here, host: "a.example"},
			testRequest{agent: "known", client: here, host: "b.example"}, nil, false},
		{"the same site", testRequest{agent: "known", client: here, host: "a.example:80"},
			testRequest{agent: "known", client: here, host: "A.example."}, nil, true},
		{"one site by two names, as a proxy in front says",
			testRequest{agent: "known", client: here, header: map[string]string{"X-Forwarded-Host": "a"}},
			testRequest{agent: "known", client: here, header: map[string]string{"X-Forwarded-Host": "b"}}, nil, false},
		{"an empty Cookie", usual, testRequest{agent: "known", client: here, cookies: []string{" ; "}}, nil, true},
		{"with any cookie", usual, testRequest{agent: "known", client: here, cookies: []string{"theme=dark"}}, nil,
			false},
		{"with an invalid cookie", usual, testRequest{agent: "known", client: here, cookies: []string{"x"}}, nil,
			false},
		{"POST", usual, testRequest{agent: "known", client: here, method: "POST", body: "a=b"}, nil, false},
		{"after a POST", testRequest{agent: "known", client: here, method: "POST", body: "a=b"}, usual, nil, false},
		{"GET with a body", usual, testRequest{agent: "known", client: here, body: "a=b"}, nil, false},
		{"OPTIONS", usual, testRequest{agent: "known", client: here, method: "OPTIONS"}, nil, false},
		{"after a login", testRequest{agent: "known", client: here,
			header: map[string]string{"Authorization": "Basic eDp4"}}, usual, nil, false},
		{"after a login by the address", testRequest{agent: "known", client: here, path: "/?user=a&password=b"},
			usual, nil, false},
		{"login by the address", usual, testRequest{agent: "known", client: here, path: "/in?acces%73_token=a"}, nil,
			false},
		{"OAuth", usual, testRequest{agent: "known", client: here, path: "/back?state=1&code=2"}, nil, false},
		{"an author", usual, testRequest{agent: "known", client: here, path: "/?author=1&code=2&passage=3&token="},
			nil, true},

		{"a POST between", usual, usual, &testRequest{agent: "known", client: near, method: "POST", body: "a=b"},
			false},
		{"a DELETE between", usual, usual, &testRequest{agent: "known", client: here, method: "DELETE"}, false},
		{"Authorization between", usual, usual, &testRequest{agent: "known", client: here,
			header: map[string]string{"Authorization": "x"}}, false},
		{"a key between", usual, usual, &testRequest{agent: "known", client: here,
			header: map[string]string{"X-Api-Key": "x"}}, false},
		{"a method override between", usual, usual, &testRequest{agent: "known", client: here,
			header: map[string]string{"X-HTTP-Method-Override": "DELETE"}}, false},
		{"the same with underscores between", usual, usual,
			&testRequest{agent: "known", client: here, header: map[string]string{"X_HTTP_Method_Override": "DELETE"}},
			false},
		{"a key with underscores between", usual, usual,
			&testRequest{agent: "known", client: here, header: map[string]string{"api_key": "x"}}, false},
		{"a cookie between", usual, usual, &testRequest{agent: "known", client: here,
			cookies: []string{"theme=dark"}}, false},
		{"a verified bot's POST between", testRequest{agent: "verified", client: here},
			testRequest{agent: "verified", client: here},
			&testRequest{agent: "verified", client: there, method: "POST", body: "a=b"}, false},
		{"OPTIONS between", usual, usual, &testRequest{agent: "known", client: here, method: "OPTIONS"}, true},
		{"a POST of another bot between", usual, usual,
			&testRequest{agent: "forged", client: here, method: "POST", body: "a=b"}, true},
		{"a POST from far between", usual, usual, &testRequest{agent: "known", client: there, method: "POST",
			body: "a=b"}, true},
		{"a person's POST between", usual, usual, &testRequest{agent: "person", client: here, method: "POST",
			body: "a=b"}, true},
		{"a POST to another site between", usual, usual,
			&testRequest{agent: "known", client: here, host: "b", method: "POST", body: "a=b"}, true},
		{"a person's cookie between", usual, usual, &testRequest{agent: "person", client: here,
			cookies: []string{"JSESSIONID=abcdefghijklmnopqrst"}}, true},
		{"another fairshare in front between", usual, usual,
			&testRequest{agent: "known", client: here, header: map[string]string{"Fairshare-Session-Ttl": "120"}},
			true},
	} {
		for _, kind := range []string{"java", "php", "coldfusion"} {
			s := newSite(t, newUpstream(kind), named)
			first, set := s.send(t, test.first)
			if len(set) == 0 {
				t.Errorf("%s, %s: the opener did not get its cookie", test.name, kind)
			}
			if test.between != nil {
				s.send(t, *test.between)
			}
			before := s.count()
			second, set := s.send(t, test.second)
			shares := before == s.count() && len(set) == 0
			if shares != test.shares || test.second.method != "HEAD" && test.shares != (id(first) == id(second)) {
				t.Errorf("%s, %s: the second shares %v, want %v: %q, %q, cookies %q", test.name, kind, shares,
					test.shares, first, second, set)
			}
		}
	}
}

// A session that any client uses as its own is no longer shared, and never again.
func TestSessionUsedByAClientIsNoLongerShared(t *testing.T) {
	usual := testRequest{agent: "known", client: here}
	for _, kind := range []string{"java", "php", "coldfusion"} {
		for name, use := range map[string]func(set []string) testRequest{
			"the bot": func(set []string) testRequest {
				return testRequest{agent: "known", client: here,
					cookies: set}
			},
			"in one line": func(set []string) testRequest {
				return testRequest{agent: "person", cookies: []string{strings.Join(set, "; ")}}
			},
			"another bot": func(set []string) testRequest {
				return testRequest{agent: "forged",
					client: there, cookies: set}
			},
			"as a person": func(set []string) testRequest {
				return testRequest{agent: "person",
					client: there, cookies: set}
			},
			"with another one, too": func(set []string) testRequest {
				return testRequest{agent: "person",
					cookies: append(set, "a=b")}
			},
			"a person, to log in": func(set []string) testRequest {
				return testRequest{agent: "person", client: there, cookies: set, method: "POST", path: "/login",
					body: "name=joe"}
			},
			"in quotes": func(set []string) testRequest {
				for i, pair := range set {
					name, value, _ := strings.Cut(pair, "=")
					set[i] = name + `="` + value + `"`
				}
				return testRequest{agent: "person", cookies: set}
			},
			"with escapes": func(set []string) testRequest {
				for i, pair := range set {
					name, value, _ := strings.Cut(pair, "=")
					set[i] = name + "=%" + strings.ToUpper(hex(value[0])) + value[1:]
				}
				return testRequest{agent: "person", cookies: set}
			},
			"in the query": func(set []string) testRequest {
				return testRequest{agent: "person", path: "/?a=b&" + strings.Join(set, "&")}
			},
			"in the path": func(set []string) testRequest {
				return testRequest{agent: "person", path: "/a;" + strings.ToLower(set[0][:4]) + set[0][4:] + ";" +
					set[len(set)-1] + "/b"}
			},
		} {
			s := newSite(t, newUpstream(kind), named)
			first, set := s.send(t, usual)
			set = slices.DeleteFunc(set, func(pair string) bool { return pair == "theme=dark" })
			s.send(t, use(set))
			second, _ := s.send(t, usual)
			third, _ := s.send(t, usual)
			if id(second) == id(first) || id(second) != id(third) {
				t.Errorf("%s, %s: then %q, %q and %q", kind, name, first, second, third)
			}
		}
	}
}

func hex(c byte) string { return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]) }

// A bot that follows its own links, which contain its session, does not end the sharing.
func TestBotFollowsItsOwnLinks(t *testing.T) {
	s := newSite(t, newUpstream("java"), named)
	usual := testRequest{agent: "known", client: here}
	first, set := s.send(t, usual)
	second, _ := s.send(t, testRequest{agent: "known", client: near,
		path: "/a;jsessionid=" + strings.TrimPrefix(set[0], "JSESSIONID=")})
	if third, _ := s.send(t, usual); id(first) != id(second) || id(first) != id(third) {
		t.Errorf("%q, %q, %q", first, second, third)
	}
}

// A session that a person sent is never shared, even if the upstream sets it for a bot.
func TestSessionOfAPersonIsNeverShared(t *testing.T) {
	const value = "abcdefghijklmnopqrstuvwxyz"
	for name, bring := range map[string]struct{ first, bot testRequest }{
		"in a cookie, before": {testRequest{agent: "person", client: here, cookies: []string{"PHPSESSID=" + value}},
			testRequest{}},
		"by the bot's address": {testRequest{}, testRequest{path: "/?sid=" + value}},
		"escaped":              {testRequest{}, testRequest{path: "/?sid=%61" + value[1:]}},
		"in the path":          {testRequest{}, testRequest{path: "/magic/" + value}},
		"behind the path":      {testRequest{}, testRequest{path: "/a;phpsessid=" + value}},
		"in a header":          {testRequest{}, testRequest{header: map[string]string{"X-Link": "a " + value}}},
		"in the referring page": {testRequest{}, testRequest{header: map[string]string{"Referer": "http://a/?sid=" +
			value}}},
	} {
		var got []string
		h := sessions.New(sessions.Config{Cookies: named.Cookies, Identify: clientOf},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header["Cookie"]
				w.Header().Add("Set-Cookie", "PHPSESSID="+value+"; Path=/")
			}))
		send := func(a testRequest) {
			r := httptest.NewRequest("GET", "http://a"+max(a.path, "/"), nil)
			for name, value := range a.header {
				r.Header.Set(name, value)
			}
			for _, pair := range a.cookies {
				r.Header.Add("Cookie", pair)
			}
			h.ServeHTTP(known{httptest.NewRecorder(), addr(here), bots[a.agent]}, r)
		}
		if bring.first.agent != "" {
			send(bring.first)
		}
		bring.bot.agent = "known"
		send(bring.bot)
		if send(testRequest{agent: "known"}); got != nil {
			t.Errorf("%s: the upstream is offered %q", name, got)
		}
	}
}

// When the upstream forgets a session, the new session is shared by all.
func TestForgottenSessionIsReplaced(t *testing.T) {
	for _, kind := range []string{"java", "php", "coldfusion"} {
		s := newSite(t, newUpstream(kind), named)
		usual := testRequest{agent: "verified", client: here}
		s.send(t, usual)
		s.forget()
		second, set := s.send(t, usual)
		third, again := s.send(t, usual)
		if id(second) != id(third) || len(set) == 0 || len(again) != 0 || s.count() != 2 {
			t.Errorf("%s: %q with %q, then %q with %q, %d sessions", kind, second, set, third, again, s.count())
		}
	}
}
