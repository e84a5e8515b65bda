package httpguard

import "testing"

func TestAccept(t *testing.T) {
	for _, test := range []struct {
		accept []string
		want   bodyKind
	}{
		{nil, textBody},
		{[]string{"*/*"}, textBody},                  // curl
		{[]string{"image/avif,*/*;q=0.8"}, textBody}, // a picture in a page
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, htmlBody},
		{[]string{"application/json, text/plain, */*"}, jsonBody}, // axios
		{[]string{"application/json"}, jsonBody},
		{[]string{"application/problem+json, application/json;q=0.9"}, jsonBody},
		{[]string{"application/*"}, jsonBody},
		{[]string{"text/*"}, textBody},
		{[]string{"text/plain"}, textBody},
		{[]string{"TEXT/HTML"}, htmlBody},
		{[]string{"text/html;level=1"}, htmlBody},
		{[]string{"text/html;q=0.5, application/json;q=0.6"}, jsonBody},
		// the specific range holds for HTML, the wildcard for the rest
		{[]string{"text/html;q=0.5, */*;q=0.8"}, textBody},
		{[]string{"text/html;q=0, */*"}, textBody},
		{[]string{"text/html;q=0"}, textBody},
		{[]string{"application/json;q=0.3", "text/html;q=0.4"}, htmlBody}, // two lines
		{[]string{"text/html ; Q=1.000 , application/json ; q = 0.9"}, htmlBody},
		{[]string{"text/html;q=1.001, application/json;q=0.001"}, jsonBody},
		{[]string{"application/xml"}, textBody},
		{[]string{",,;;q=,=;"}, textBody},
	} {
		if got := preferred(test.accept); got != test.want {
			t.Errorf("%q: %v, want %v", test.accept, got, test.want)
		}
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("text/html;q=0.5, */*;q=0.8")
	f.Add("application/json;q=1.0000,text/plain;q=")
	f.Fuzz(func(t *testing.T, accept string) {
		if kind := preferred([]string{accept}); kind > jsonBody {
			t.Errorf("%q: %v", accept, kind)
		}
		if _, q := mediaRange(accept); q < 0 || q > 1000 {
			t.Errorf("%q weighs %d", accept, q)
		}
	})
}
