package operator

import (
	"testing"
)

func TestRangesOfAddressesBecomeAPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.*":               "203.0.113.0/24",
		"203.0.113.x":               "203.0.113.0/24",
		"203.0.*.*":                 "203.0.0.0/16",
		"203.0.*":                   "203.0.0.0/16",
		"203.0.113.0-255":           "203.0.113.0/24",
		"203.0.113.1-254":           "203.0.113.0/24",
		"203.0.113.64-95":           "203.0.113.64/27",
		"203.0.113.9-9":             "203.0.113.9/32",
		"10.0.0.0-10.0.3.255":       "10.0.0.0/22",
		"2001:db8::-2001:db8::ffff": "2001:db8::/112",
		"203.0.113.9-1":             "",
		"203.0.113.0-256":           "",
		"203.0.113.0-::1":           "",
		"fe80::1%a-fe80::2%b":       "",
		"203.0.113.2*":              "",
		"203.0.113.9":               "",
		"1.2.3.4.*":                 "",
		"*":                         "",
		"-":                         "",
		"":                          "",
	} {
		got := ""
		if p := meantPrefix(text); p.IsValid() {
			got = p.String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzClientArgument(f *testing.F) {
	for _, text := range []string{"203.0.113.9", "2001:db8::1/64", "googlebot", "::", "1.2.3.4:80", "ai", "a.example",
		"\xff", "fe80::1%eth0", "203.0.113.0-255", "::ffff:1.2.3.4-::5", "203.0.*"} {
		f.Add(text)
	}
	o := &operation{}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := o.client(text)
		if err != nil {
			return
		}
		again, err := o.client(n.argument)
		if err != nil || again.ClientID != n.ClientID {
			t.Errorf("%q is %v, written %q is %v, %v", text, n.ClientID, n.argument, again.ClientID, err)
		}
	})
}
