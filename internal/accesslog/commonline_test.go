package accesslog

import (
	"math/rand/v2"
	"testing"
)

// The quick reading of common lines agrees with the full one.
func TestCommonLinesAreReadAsAnyLine(t *testing.T) {
	lines := []string{
		`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.1" 200 1234 "https://shop.example/" "Mozilla/5 (X)"`,
		`10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "POST /login HTTP/2.0" 302 0 "-" "-" "203.0.113.9" 0.012 rt=0.5`,
		`255.250.9.99 - - [31/Dec/2025:23:59:59 +0530] "HEAD / HTTP/1.0" 304 -`,
		`8.8.8.8 - - [10/Oct/2000:13:55:36 -0700] "-" 400 0 "-" "curl/8.1 \"x\""`,
		`8.8.8.8 - - [10/Oct/2000:13:55:36 -0700] "PROPFIND http://a.example/ HTTP/1.1" 999 99999999999999999 "" ""`,
	}
	spare := []byte("\"\\ -[]/0129.:aGHTP?\x00\xFF")
	rnd := rand.New(rand.NewPCG(1, 2))
	quick := 0
	for step := range 200_000 {
		line := []byte(lines[rnd.IntN(len(lines))])
		for n := rnd.IntN(4); n > 0 && len(line) > 8; n-- {
			switch i := rnd.IntN(len(line)); rnd.IntN(4) {
			case 0:
				line[i] = spare[rnd.IntN(len(spare))]
			case 1:
				line = append(line[:i], line[i+1:]...)
			case 2:
				line = append(line[:i+1], line[i:]...)
				line[i] = spare[rnd.IntN(len(spare))]
			case 3:
				line = line[:i+1]
			}
		}
		p := &clfParser{escape: escape(step % 3)}
		var got, want Entry
		var w, v worker
		if !p.common(line, &got, &w) {
			continue
		}
		quick++
		if reason := p.any(line, &want, &v); reason != "" || got != want || w.shape != v.shape {
			t.Fatalf("%q:\n got %+v (%d)\nwant %+v (%d), %q", line, got, w.shape, want, v.shape, reason)
		}
	}
	if quick < 20_000 {
		t.Errorf("only %d lines were read quickly", quick)
	}
}
