package bots

import (
	"strings"
)

// Recognise says what a user agent is taken for, and the piece of it that told
// so: nil when it is taken for no bot. It takes any bytes, allocates nothing,
// and is safe for concurrent use.
//
// A bot that has a name goes before what it is made with (libraries, headless
// browsers, tools), this before general signs such as "crawler" or the address
// of a page; among equals the longest pattern wins, then the one that ends
// first. Where nothing of the kind is found, what holds nothing that browsers,
// phones and their apps say is [NoBrowser], and so is a desktop browser with
// more behind it than browsers say.
func (t *Table) Recognise(userAgent string) (b *Bot, token string) {
	if len(userAgent) > MaxUserAgent {
		return t.oversized, ""
	}
	hash, found, known := t.cache.get(userAgent)
	if !known {
		found = t.look(userAgent)
		t.cache.put(hash, found)
	}
	return t.answer(found, userAgent)
}

// A finding is what a user agent is taken for in one word: the bot's index plus
// one, zero for none, in 16 bits, and start and end of the token in 11 each.
type finding uint64

func newFinding(bot int32, start, end int) finding {
	return finding(bot+1) | finding(start)<<16 | finding(end)<<27
}

func (t *Table) answer(f finding, userAgent string) (*Bot, string) {
	bot, start, end := int(f&0xFFFF), int(f>>16&0x7FF), int(f>>27&0x7FF)
	if bot == 0 || start > end || end > len(userAgent) {
		return nil, ""
	}
	return &t.bots[bot-1], userAgent[start:end]
}

// look finds what a user agent of at most MaxUserAgent bytes is taken for.
func (t *Table) look(userAgent string) finding {
	word := strings.Trim(userAgent, " \t")
	if word == "" || word == "-" {
		return newFinding(t.empty, 0, 0)
	}
	a := t.automaton
	var best *pattern
	var bestEnd int
	people, innocent := false, false
	shift, floor := a.shift&15, a.ending
	state := uint16(0)
	for i := range len(userAgent) {
		state = a.next[uint(state)<<shift|uint(a.class[userAgent[i]])]
		if state < floor {
			continue
		}
		from := a.from[state-a.ending:]
		for _, n := range a.found[from[0]:from[1]] {
			p := &a.patterns[n]
			if !p.stands(userAgent, i+1-len(p.text), i+1) {
				continue
			}
			switch {
			case p.bot == peopleSign:
				people, floor = true, a.telling
			case p.bot == innocentSign:
				innocent = true
			case best == nil || p.beats(best):
				best, bestEnd = p, i+1
			}
		}
	}
	if best != nil {
		if from, to := deviceName(userAgent); innocent || from < to {
			best, bestEnd = t.guilty(userAgent, from, to)
		}
	}
	switch {
	case best != nil:
		return newFinding(best.bot, bestEnd-len(best.text), bestEnd)
	case !people:
		start := strings.Index(userAgent, word)
		end := strings.IndexAny(word, " /(;\t")
		if end <= 0 {
			end = len(word)
		}
		return newFinding(t.noBrowser, start, start+end)
	}
	if start, end := stranger(userAgent); start < end && !(innocent && t.inside(userAgent, start)) {
		return newFinding(t.noBrowser, start, end)
	}
	return 0
}

// stranger is a word without a version where desktop browsers have products
// with one: right behind Safari/537.36 or, in Firefox 4 and later,
// Firefox/120.0, and before Safari/537.36. Telephones say there what they like.
func stranger(userAgent string) (start, end int) {
	rest, found := strings.CutPrefix(userAgent, "Mozilla/5.0 (")
	if !found || !strings.HasPrefix(rest, "Windows NT ") && !strings.HasPrefix(rest, "Macintosh; ") &&
		!strings.HasPrefix(rest, "X11; Linux ") && !strings.HasPrefix(rest, "X11; Ubuntu; ") && !strings.HasPrefix(rest, "Linux x86_64) ") {
		return 0, 0
	}
	const like, safari, firefox = " (KHTML, like Gecko) ", " Safari/", " Gecko/20100101 Firefox/"
	if i := strings.Index(userAgent, like); i >= 0 {
		start, end = word(userAgent, i+len(like))
		if userAgent[start:end] == "Mobile" || userAgent[start:end] == "Safari" {
			return 0, 0
		}
	}
	if start == end {
		i := strings.LastIndex(userAgent, safari) + 1
		if i == 0 {
			if i = strings.LastIndex(userAgent, firefox); i < 0 {
				return 0, 0
			}
			i += len(" Gecko/20100101 ")
		}
		if n := strings.IndexByte(userAgent[i:], ' '); n >= 0 {
			start, end = word(userAgent, i+n)
		}
	}
	return start, end
}

// word is what stands at userAgent[i:] up to the next blank when it is no
// product with a version; start is end when it is.
func word(userAgent string, i int) (start, end int) {
	text := strings.TrimLeft(userAgent[i:], " ")
	start = len(userAgent) - len(text)
	if n := strings.IndexByte(text, ' '); n >= 0 {
		text = text[:n]
	}
	if text == "" || text[0] != '(' && strings.ContainsAny(text, "/=") {
		return 0, 0
	}
	return start, start + len(text)
}

// inside reports whether what begins at userAgent[at] stands in an innocent
// text.
func (t *Table) inside(userAgent string, at int) (innocent bool) {
	t.each(userAgent, func(p *pattern, start, end int) {
		innocent = innocent || p.bot == innocentSign && start <= at && at < end
	})
	return innocent
}

// beats reports whether p, found later, says more than q.
func (p *pattern) beats(q *pattern) bool {
	if p.rank != q.rank {
		return p.rank > q.rank
	}
	return len(p.text) > len(q.text)
}

// deviceName is where an Android client names its device: in userAgent[from:to],
// behind "Android 4.4.2; de-de; " and before " Build/". What is called a CUBOT
// or a DROID SPYDER there is a telephone.
func deviceName(userAgent string) (from, to int) {
	to = strings.Index(userAgent, " Build/")
	if to < 0 {
		return 0, 0
	}
	android := strings.LastIndex(userAgent[:to], "Android ")
	if android < 0 {
		return 0, 0
	}
	from = strings.LastIndexAny(userAgent[:to], ";(") + 1
	if from < android {
		return 0, 0
	}
	return from, to
}

// guilty is the best pattern that begins neither inside an innocent text nor in
// userAgent[from:to].
func (t *Table) guilty(userAgent string, from, to int) (best *pattern, bestEnd int) {
	var reach [MaxUserAgent]uint16 // how far innocent texts that begin here go
	if from < to {
		reach[from] = uint16(to)
	}
	t.each(userAgent, func(p *pattern, start, end int) {
		if p.bot == innocentSign {
			reach[start] = max(reach[start], uint16(end))
		}
	})
	for i := 1; i < len(userAgent); i++ {
		reach[i] = max(reach[i], reach[i-1])
	}
	t.each(userAgent, func(p *pattern, start, end int) {
		if p.bot >= 0 && int(reach[start]) <= start && (best == nil || p.beats(best)) {
			best, bestEnd = p, end
		}
	})
	return best, bestEnd
}

// each calls do for every pattern that stands in the user agent.
func (t *Table) each(userAgent string, do func(p *pattern, start, end int)) {
	a := t.automaton
	state := uint16(0)
	for i := range len(userAgent) {
		state = a.next[uint(state)<<(a.shift&15)|uint(a.class[userAgent[i]])]
		if state < a.ending {
			continue
		}
		from := a.from[state-a.ending:]
		for _, n := range a.found[from[0]:from[1]] {
			if p := &a.patterns[n]; p.stands(userAgent, i+1-len(p.text), i+1) {
				do(p, i+1-len(p.text), i+1)
			}
		}
	}
}
