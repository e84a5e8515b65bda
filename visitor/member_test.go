package visitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// memberCookie returns the value of a member's cookie as a site makes it.
func memberCookie(secret []byte, id string, until time.Time) string {
	text := fmt.Sprintf("%s:%d", id, until.Unix())
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + hex.EncodeToString(mac.Sum(nil))
}

func TestMembersAreThoseThatTheSiteHasSigned(t *testing.T) {
	m, err := NewMembers("member", secret)
	if err != nil {
		t.Fatal(err)
	}
	valid := memberCookie(secret, "42", start.Add(time.Hour))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("42:4000000000"))
	inBase64 := "42:4000000000." + base64.URLEncoding.EncodeToString(mac.Sum(nil))
	want := m.Read([]string{"member=" + valid}, start, start)
	if want.ID == 0 || !want.Member || !want.Since.Equal(start) {
		t.Fatalf("a valid cookie identifies %+v", want)
	}
	for _, test := range []struct {
		name  string
		lines []string
		found bool
	}{
		{"among others", []string{"a=b; member=" + valid + "; c=d"}, true},
		{"twice the same", []string{"member=" + valid, "member=" + valid}, true},
		{"in base64url", []string{"member=" + inBase64}, true},
		{"with escapes, as setcookie of PHP sends it", []string{"member=" + url.QueryEscape(valid)}, true},
		{"with escapes in lower case", []string{"member=" + strings.Replace(valid, ":", "%3a", 1)}, true},
		{"with a broken escape", []string{"member=" + strings.Replace(valid, ":", "%3", 1)}, false},
		{"with escaped escapes", []string{"member=" + strings.Replace(valid, ":", "%253A", 1)}, false},
		{"with another expiry", []string{"member=" + memberCookie(secret, "42", start.Add(time.Minute))}, true},
		{"of somebody else", []string{"member=" + memberCookie(secret, "43", start.Add(time.Hour))}, false},
		{"expired", []string{"member=" + memberCookie(secret, "42", start)}, false},
		{"signed by somebody else", []string{"member=" + memberCookie(other, "42", start.Add(time.Hour))}, false},
		{"without an identity", []string{"member=" + memberCookie(secret, "", start.Add(time.Hour))}, false},
		{"with two values", []string{"member=" + valid + "; member=x"}, false},
		{"under another name", []string{"members=" + valid}, false},
		{"without a signature", []string{"member=42:4000000000"}, false},
		{"none", nil, false},
	} {
		if got := m.Read(test.lines, start, start); (got.ID == want.ID && got.Network == want.Network) != test.found {
			t.Errorf("%s: found %+v, want the member: %v", test.name, got, test.found)
		}
	}
	for _, c := range []struct {
		name   string
		secret []byte
	}{{"", secret}, {Name, secret}, {"member", []byte("short")}} {
		if _, err := NewMembers(c.name, c.secret); err == nil {
			t.Errorf("NewMembers(%q, %q) gives no error", c.name, c.secret)
		}
	}
}

func FuzzMembers(f *testing.F) {
	m, err := NewMembers("m", secret)
	if err != nil {
		f.Fatal(err)
	}
	valid := memberCookie(secret, "42", start.Add(time.Hour))
	f.Add("m=" + valid)
	f.Add("m=1:2.3; m=" + valid)
	id := m.Read([]string{"m=" + valid}, start, start).ID
	f.Fuzz(func(t *testing.T, line string) {
		if v := m.Read([]string{line}, start, start); v.ID != 0 && v.ID != id {
			t.Errorf("%q identifies %+v", line, v)
		}
	})
}

// An identity may hold what looks like an escape, if the site sends it as it is.
func TestEscapesInIdentities(t *testing.T) {
	m, err := NewMembers("member", secret)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint64]string{}
	for _, id := range []string{"50%25", "50%", "müller", "a b"} {
		plain := memberCookie(secret, id, start.Add(time.Hour))
		for _, value := range []string{plain, url.PathEscape(plain)} {
			v := m.Read([]string{"member=" + value}, start, start)
			if v.ID == 0 || ids[v.ID] != "" && ids[v.ID] != id {
				t.Errorf("%q: %+v, as %q", value, v, ids[v.ID])
			}
			ids[v.ID] = id
		}
	}
}
