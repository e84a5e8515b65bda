package sessions_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"fairshare/internal/sessions"
)

// crawl sends n requests of a bot from alternating addresses, some at once.
func crawl(t *testing.T, s *site, agent string, n, atOnce int, address func(i int) string) {
	var all sync.WaitGroup
	for first := range atOnce {
		all.Go(func() {
			for i := first; i < n; i += atOnce {
				if page, _ := s.send(t, testRequest{agent: agent, client: address(i),
					path: fmt.Sprint("/page/", i)}); !strings.HasPrefix(page, "id=") {
					t.Errorf("the upstream answers %q", page)
					return
				}
			}
		})
	}
	all.Wait()
}

// A crawl of 10,000 requests from 50 addresses opens only a few sessions.
func TestCrawlOpensFewSessions(t *testing.T) {
	for _, kind := range []string{"java", "php", "coldfusion"} {
		for _, test := range []struct {
			agent   string
			address func(i int) string
			groups  int
		}{
			{"verified", func(i int) string { return fmt.Sprintf("66.249.%d.%d", i%50, i%50) }, 1},
			{"known", func(i int) string { return fmt.Sprintf("192.0.%d.%d", i%3, i%50) }, 3},
			{"forged", func(i int) string { return fmt.Sprintf("2001:db8:%d:%x::1", i%2, i%50) }, 2},
			{"pending", func(i int) string { return fmt.Sprintf("192.0.2.%d", i%50) }, 1},
		} {
			t.Run(kind+" "+test.agent, func(t *testing.T) {
				const atOnce = 4
				requests := 10_000
				if kind != "java" || test.groups == 2 || test.agent == "pending" || testing.Short() {
					requests = 1000
				}
				s := newSite(t, newUpstream(kind), named)
				crawl(t, s, test.agent, requests, atOnce, test.address)
				if n := s.count(); n > test.groups*atOnce {
					t.Errorf("%d sessions, want at most %d: those before the first answer", n, test.groups*atOnce)
				}
			})
		}
	}
}

// During a crawl, people get their own sessions, which no other client uses, even in the crawler's
// networks.
func TestPeopleDuringACrawl(t *testing.T) {
	for _, kind := range []string{"java", "php", "coldfusion"} {
		s := newSite(t, newUpstream(kind), named)
		address := func(i int) string { return fmt.Sprintf("192.0.2.%d", i%50) }
		var people sync.WaitGroup
		for person := range 8 {
			people.Go(func() {
				name := fmt.Sprint("person", person)
				a := testRequest{agent: "Mozilla/5.0", client: address(person)}
				page, set := s.send(t, a)
				a.cookies = []string{strings.Join(set, "; ")}
				own := id(page)
				for i := range 50 {
					a.method, a.path, a.body = "GET", "/cart", ""
					if i%10 == 0 {
						a.method, a.path, a.body = "POST", "/login", "name="+name
					}
					if page, set := s.send(t, a); page != "id="+own+" name="+name || len(set) > 0 {
						t.Errorf("%s: %s in session %s gets %q, and the cookies %q", kind, name, own, page, set)
						return
					}
				}
			})
		}
		var bots sync.WaitGroup
		for _, agent := range []string{"verified", "known", "forged"} {
			bots.Go(func() {
				for i := range 500 {
					if page, _ := s.send(t, testRequest{agent: agent, client: address(i)}); !strings.HasSuffix(page,
						"name=") {
						t.Errorf("%s: a bot gets %q", kind, page)
						return
					}
				}
			})
		}
		people.Wait()
		bots.Wait()
		if n := s.count(); n > 8+3*3 {
			t.Errorf("%s: %d sessions for 8 people and 3 crawlers", kind, n)
		}
	}
}

// Without a config nothing is shared or changed.
func TestOffChangesNothing(t *testing.T) {
	for name, c := range map[string]sessions.Config{"no names": {Identify: clientOf},
		"other names": {Cookies: []string{"SESSION", "jsessionid"}}} {
		s := newSite(t, newUpstream("java"), c)
		crawl(t, s, "verified", 20, 1, func(int) string { return "192.0.2.1" })
		if n := s.count(); n != 20 {
			t.Errorf("%s: %d sessions, want one for each of 20 requests", name, n)
		}
	}
}
