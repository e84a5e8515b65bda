package logins

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairshare"
)

const formType = "application/x-www-form-urlencoded"

// A redirect to a page that the client may have named does not prove a login.
func TestRedirectToAPageThatTheClientNames(t *testing.T) {
	for _, c := range []struct {
		name, target, body, kind, cookie, location string
		cut                                        bool
		want                                       Result
	}{
		{"a page of the application", "/login", "user=a&next=%2Fother", formType, "", "/account", false, Succeeded},
		{"in a field that nothing is known of", "/login", "user=a&next=%2Faccount", formType, "", "/account", false,
			Unknown},
		{"as a URL", "/login", "next=https%3A%2F%2Fexample.org%2Faccount%3Fx", formType, "",
			"https://example.org/account#top", false, Unknown},
		{"in the query", "/login?next=/account", "", "", "", "/account", false, Unknown},
		{"in a cookie", "/login", "", "", "a=b; back=%2Faccount", "/account", false, Unknown},
		{"in Base64", "/login", "return=aW5kZXgucGhwL2FjY291bnQ", formType, "", "/index.php/account", false, Unknown},
		{"encoded twice", "/login", "next=%252Faccount", formType, "", "/account", false, Unknown},
		{"with dots", "/login", "next=%2Fx%2F..%2Faccount", formType, "", "/account", false, Unknown},
		{"with backslashes", "/login", "next=%5Caccount", formType, "", "/account", false, Unknown},
		{"without the language", "/login", "next=%2Faccount", formType, "", "/en/account", false, Unknown},
		{"relative", "/app/login", "next=my%2Faccount", formType, "", "my/account", false, Unknown},
		{"the front page", "/login", "next=%2F", formType, "", "/", false, Unknown},
		{"as JSON", "/login", `{"user":"a","next":"\/account"}`, "application/json", "", "/account", false, Unknown},
		{"in a part of a form", "/login", "--x\r\nContent-Disposition: form-data; name=next\r\n\r\n/account\r\n--x--",
			"multipart/form-data; boundary=x", "", "/account", false, Unknown},
		{"in a body that is too long", "/login", "user=a", formType, "", "/account", true, Unknown},
		{"after a failure", "/login", "_failure_path=%2Faccount", formType, "", "/account", false, Failed},
		{"after a failure, by the name of a route", "/login", "_failure_path=account", formType, "", "/account", false,
			Unknown},
		{"behind many other fields", "/login", strings.Repeat("a=b&", 100) + "next=%2Faccount", formType, "",
			"/account", false, Unknown},
		{"a user with the name of the page", "/login", "user=admin", formType, "", "/admin", false, Succeeded},
		{"WordPress, with its cookie", "/wp-login.php", "redirect_to=%2Faccount", formType, "", "/account", false,
			Succeeded},
	} {
		answer := Answer{Status: 302, Live: true, Location: c.location, SetCookie: []string{"sid=1"}, Body: c.body,
			BodyType: c.kind, BodyCut: c.cut}
		if strings.HasSuffix(c.target, "wp-login.php") {
			answer.SetCookie = []string{"wordpress_logged_in_1=anna"}
		}
		_, _, got := send(New(Options{}), begin, "192.0.2.1", "POST", c.target, answer, func(r *fairshare.Request) {
			if c.cookie != "" {
				r.Header = http.Header{"Cookie": {c.cookie}}
			}
		})
		if got != c.want {
			t.Errorf("%s: result %d, want %d", c.name, got, c.want)
		}
	}
}

// Clients that failed and were not redirected to the page that they named prove that its field names the page after a
// success.
func TestFieldsOfPagesAreLearned(t *testing.T) {
	form := func(body string) Answer {
		return Answer{Status: 302, Live: true, Location: "/login?error", Body: body, BodyType: formType}
	}
	for _, c := range []struct {
		name   string
		failed func(i int) Answer
		n      int
		want   Result
	}{
		{"the form again, of two clients", func(int) Answer { return form("user=a&next=%2Fcart") }, 2, Succeeded},
		{"the form again, of one client", func(int) Answer { return form("user=a&next=%2Fcart") }, 1, Unknown},
		{"a URL of this host", func(int) Answer {
			return form("next=https%3A%2F%2FExample.org%3A443%2Fcart%3Fx%3D1")
		}, 2, Succeeded},
		{"a URL of another host", func(int) Answer { return form("next=https%3A%2F%2Fevil.example%2Fcart") }, 3,
			Unknown},
		{"in Base64", func(int) Answer { return form("next=L2NhcnQ%3D") }, 2, Succeeded},
		{"401", func(int) Answer {
			a := form("user=a&next=%2Fcart")
			a.Status, a.Location = 401, ""
			return a
		}, 2, Succeeded},
		{"other fields", func(i int) Answer { return form(fmt.Sprintf("user=a&x%d=%%2Fcart", i)) }, 3, Unknown},
		{"a page that applications ignore", func(int) Answer { return form("next=%2F%2Fevil.example%2Fcart") }, 3,
			Unknown},
		{"two values", func(int) Answer { return form("next=%2Fcart&next=x") }, 3, Unknown},
		{"the form itself", func(int) Answer { return form("next=%2Flogin") }, 3, Unknown},
	} {
		w := New(Options{})
		for i := range c.n {
			send(w, begin, fmt.Sprintf("198.51.%d.7", i*83), "POST", "/login", c.failed(i))
		}
		var saved strings.Builder
		w.Save(&saved)
		later := New(Options{})
		if err := later.Load(strings.NewReader(saved.String()), begin); err != nil {
			t.Fatal(err)
		}
		for name, w := range map[string]*Watcher{"": w, ", after a restart": later} {
			_, _, got := send(w, begin, "192.0.2.1", "POST", "/login", Answer{Status: 302, Live: true,
				Location: "/checkout", SetCookie: []string{"sid=1"}, Body: "next=%2Fcheckout", BodyType: formType})
			if got != c.want && !(c.want == Succeeded && collide(w)) {
				t.Errorf("%s%s: result %d, want %d", c.name, name, got, c.want)
			}
		}
	}
}

// collide reports whether both clients had the same bit of a field.
func collide(w *Watcher) bool {
	for _, f := range w.forms {
		for _, field := range f.fields {
			if field.isProven() {
				return false
			}
		}
	}
	return true
}

// While nothing is known of a field, few clients may be redirected to a page that they name.
func TestUnprovenRedirectsAreBounded(t *testing.T) {
	w, passed := New(Options{}), 0
	for i := range 1000 {
		addr := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		_, excess, _ := send(w, begin.Add(time.Duration(i)*time.Second), addr, "POST", "/login", Answer{Status: 302,
			Live: true, Location: "/news", SetCookie: []string{"sid=1"}, Body: "back=%2Fnews", BodyType: formType})
		if !excess {
			passed++
		}
	}
	if passed > 40 {
		t.Errorf("%d of 1000 pass", passed)
	}
}

func FuzzFields(f *testing.F) {
	f.Add("next=%2Faccount&x", "/account", "a=b; c", "/x?y")
	f.Fuzz(func(t *testing.T, body, location, cookie, query string) {
		w := New(Options{})
		for _, status := range []int{401, 302} {
			send(w, begin, "192.0.2.1", "POST", "/login", Answer{Status: status, Live: true, Location: location,
				SetCookie: []string{"s"}, Body: body, BodyType: formType}, func(r *fairshare.Request) {
				r.Header = http.Header{"Cookie": {cookie}}
				r.Query = query
			})
		}
	})
}
