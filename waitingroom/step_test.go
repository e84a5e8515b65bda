package waitingroom

import (
	"crypto/sha256"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

func newRoom(t testing.TB, opts Options) *Room {
	t.Helper()
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func TestChallengesAreForOneVisitorAndExpire(t *testing.T) {
	key := []byte("a key of sixteen")
	r := newRoom(t, Options{Step: Button, Key: key})
	challenge := string(r.appendChallenge(nil, 7, noon))
	if len(challenge) != challengeLength {
		t.Fatalf("%d characters", len(challenge))
	}
	flipped := challenge[:63] + string(challenge[63]^1)
	later := strings.Replace(challenge, challenge[:16], "00000000ffffffff", 1)
	other := newRoom(t, Options{Step: Button})
	same := newRoom(t, Options{Step: Button, Key: key})
	work := newRoom(t, Options{Step: ProofOfWork, Key: key})
	for _, test := range []struct {
		name      string
		room      *Room
		visitor   uint64
		challenge string
		after     time.Duration
		want      bool
	}{
		{"its own", r, 7, challenge, 0, true},
		{"on another machine", same, 7, challenge, time.Minute, true},
		{"just before the end", r, 7, challenge, validity, true},
		{"after the end", r, 7, challenge, validity + time.Second, false},
		{"from the future", r, 7, challenge, -time.Second, false},
		{"of another visitor", r, 8, challenge, 0, false},
		{"of nobody", r, 0, string(r.appendChallenge(nil, 0, noon)), 0, false},
		{"of another key", other, 7, challenge, 0, false},
		{"for another step", work, 7, challenge, 0, false},
		{"changed", r, 7, flipped, 0, false},
		{"with a later end", r, 7, later, 0, false},
		{"in capitals", r, 7, strings.ToUpper(challenge), 0, strings.ToUpper(challenge) == challenge},
		{"empty", r, 7, "", 0, false},
		{"no digits", r, 7, strings.Repeat("z", 64), 0, false},
		{"without a step", newRoom(t, Options{Key: key}), 7, challenge, 0, false},
	} {
		if got := test.room.Passed(test.visitor, test.challenge, "", noon.Add(test.after)); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestProofOfWork(t *testing.T) {
	const bits = 10
	r := newRoom(t, Options{Step: ProofOfWork, Difficulty: bits})
	challenge := string(r.appendChallenge(nil, 7, noon))
	tries, right := 0, ""
	for ; right == ""; tries++ {
		answer := strconv.Itoa(tries)
		sum := sha256.Sum256([]byte(challenge + answer))
		isRight := sum[0] == 0 && sum[1]>>6 == 0
		if got := r.Passed(7, challenge, answer, noon); got != isRight {
			t.Fatalf("%s: %v, want %v", answer, got, isRight)
		}
		if isRight {
			right = answer
		}
	}
	for _, answer := range []string{"", "-" + right, right + " ", "0x1", strings.Repeat("1", maxAnswer+1)} {
		if r.Passed(7, challenge, answer, noon) {
			t.Errorf("%q passes", answer)
		}
	}
	if r.Passed(8, challenge, right, noon) {
		t.Error("the answer of one visitor is good for another")
	}
}

func FuzzPassed(f *testing.F) {
	r := newRoom(f, Options{Step: ProofOfWork, Difficulty: MinDifficulty, Key: make([]byte, 16)})
	valid := string(r.appendChallenge(nil, 7, noon))
	f.Add(valid, "12")
	f.Fuzz(func(t *testing.T, challenge, answer string) {
		if r.Passed(7, challenge, answer, noon) && challenge != valid {
			t.Errorf("%q %q passes", challenge, answer)
		}
	})
}

func TestReturnPathStaysOnTheSite(t *testing.T) {
	for to, want := range map[string]string{
		"/":                                  "/",
		"/a/b?c=d&e=%2F#":                    "/a/b?c=d&e=%2F#",
		"/.//evil.example":                   "/.//evil.example", // the same site, by RFC 3986 §5.2.4
		"":                                   "/",
		"a":                                  "/",
		"//evil.example":                     "/",
		"///evil.example":                    "/",
		`/\evil.example`:                     "/",
		`\\evil.example`:                     "/",
		`/a\b`:                               "/",
		"/\t/evil.example":                   "/",
		"/\r\nSet-Cookie: ":                  "/",
		"/\n/evil.example":                   "/",
		"/ /evil.example":                    "/",
		"/a\x00":                             "/",
		"/a\x7f":                             "/",
		"/ä":                                 "/",
		"https://evil.example/":              "/",
		"javascript:alert(1)":                "/",
		" /a":                                "/",
		"/" + strings.Repeat("a", maxReturn): "/",
	} {
		if got := ReturnPath(to); got != want {
			t.Errorf("%q: %q, want %q", to, got, want)
		}
	}
}

func FuzzReturnPath(f *testing.F) {
	f.Add("/a?b")
	f.Add(`/\evil`)
	site, _ := url.Parse("https://site.example/fairshare-step")
	f.Fuzz(func(t *testing.T, to string) {
		got := ReturnPath(to)
		if target, err := site.Parse(got); err == nil && (target.Host != site.Host || target.Scheme != site.Scheme) {
			t.Errorf("%q leads to %s", to, target)
		}
		if got != to && got != "/" {
			t.Errorf("%q becomes %q", to, got)
		}
		if strings.ContainsAny(got, "\\\t\r\n\x00") || strings.HasPrefix(got, "//") || !strings.HasPrefix(got, "/") {
			t.Errorf("%q becomes %q", to, got)
		}
	})
}
