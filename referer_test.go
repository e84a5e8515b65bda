package fairshare

import (
	"net/http"
	"testing"
)

func TestReferer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, host, target string
		referers           []string
		want               refererSet
	}{
		{"none", "example.com", "/a", nil, refererNone},
		{"empty", "example.com", "/a", []string{""}, refererNone},
		{"a name", "example.com", "/a", []string{"www.google.com"}, refererNone},
		{"no host", "example.com", "/a", []string{"https://"}, refererNone},
		{"no scheme", "example.com", "/a", []string{"://example.com/b"}, refererNone},
		{"itself", "example.com", "/a.php", []string{"http://example.com/a.php"}, refererSelf},
		{"port and case", "example.com:8443", "/a.php", []string{"https://EXAMPLE.com./a.php#b"}, refererSelf},
		{"itself with user", "example.com", "/a.php", []string{"https://me:x@example.com/a.php"}, refererSelf},
		{"itself decoded", "example.com", "/a b.php", []string{"https://example.com/%61%20b.php"}, refererSelf},
		{"itself with a slash", "example.com", "/a", []string{"https://example.com/a/"}, refererSelf},
		{"itself with two slashes", "example.com", "//a", []string{"https://example.com//a"}, refererSelf},
		{"itself with a query", "example.com", "/a?b=c", []string{"https://example.com/a?b=c"}, refererSelf},
		{"the first page", "example.com", "/", []string{"https://example.com"}, refererSelf},
		{"another query", "example.com", "/a?b=c", []string{"https://example.com/a"}, refererOwn},
		{"another page", "example.com", "/a", []string{"https://example.com/"}, refererOwn},
		{"another host", "example.com", "/a", []string{"https://example.org/a"}, refererOther},
		{"the host as a user", "example.com", "/a", []string{"https://example.com@example.org/a"}, refererOther},
		{"an app", "example.com", "/a", []string{"android-app://com.example.mail/"}, refererOther},
		{"no known host: itself", "", "/a.php", []string{"http://example.com/a.php"}, refererSelf},
		{"no known host: the first page", "", "/", []string{"http://example.com/"}, refererOther},
		{"no known host: a page", "", "/a.php", []string{"http://example.com/"}, refererOther},
		{"two", "example.com", "/a", []string{"https://example.com/a", "https://example.org/"},
			refererSelf | refererOther},
	} {
		req := Request{Host: tt.host}
		req.SetTarget(tt.target)
		req.Header = http.Header{"Referer": tt.referers}
		d := decision{req: &req}
		if got := d.referers(); got != tt.want {
			t.Errorf("%s: %04b, want %04b", tt.name, got, tt.want)
		}
	}
}

// One of two fields is enough for a restriction; a permission needs both.
func TestRefererOfPermissions(t *testing.T) {
	t.Parallel()
	req := Request{Host: "example.com"}
	req.Header = http.Header{"Referer": {"https://example.com/", "https://example.org/"}}
	req.SetTarget("/a")
	for words, want := range map[string][2]bool{"own": {true, false}, "self": {false, false}} {
		for i, favorable := range []bool{false, true} {
			m, err := newMatcher(&Match{Referer: []string{words}}, standing{favorable: favorable})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.holds(&decision{req: &req}); got != want[i] {
				t.Errorf("referer: %s, favorable %v: holds %v", words, favorable, got)
			}
		}
	}
	if _, err := newMatcher(&Match{Referer: []string{"mine"}}, standing{}); err == nil {
		t.Error("referer: mine is not refused")
	}
}
