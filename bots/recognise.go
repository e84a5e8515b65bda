package bots

import (
	"strings"
)

// Recognise returns the bot that a user agent names, and the part of the user
// agent that names it. It returns nil if there is none. It takes any bytes,
// allocates nothing, and is safe for concurrent use.
//
// If several patterns match, a bot with a name wins over the software that bots
// use: libraries, headless browsers, tools. This wins over general signs, such as
// "crawler" or the address of a page. Among equals the longest pattern
// wins, then the one that ends first.
//
// If no pattern matches, the bot may be "no-browser". The user agent then has no text
// of browsers, phones or their apps, or it is that of a desktop browser with an
// unknown product in it.
func (t *Table) Recognise(userAgent string) (b *Bot, token string) {
	if len(userAgent) > MaxUserAgent {
		return t.oversized, ""
	}
	hash, found, known := t.cache.get(userAgent)
	if !known {
		found = t.find(userAgent)
		t.cache.put(hash, found)
	}
	return t.answer(found, userAgent)
}

// A finding is the result for a user agent in 64 bits: the bot's index plus one
// in 16 bits (zero for none), and start and end of the token in 11 bits each.
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

// find returns the finding for a user agent of at most MaxUserAgent bytes.
func (t *Table) find(userAgent string) finding {
	trimmed := strings.Trim(userAgent, " \t")
	if trimmed == "" || trimmed == "-" {
		return newFinding(t.empty, 0, 0)
	}
	a := t.automaton
	var best *pattern
	var bestEnd int
	people, harmless := false, false
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
			if !p.matchesAt(userAgent, i+1-len(p.text), i+1) {
				continue
			}
			switch {
			case p.bot == peopleSign:
				people, floor = true, a.naming
			case p.bot == harmlessSign:
				harmless = true
			case best == nil || p.beats(best):
				best, bestEnd = p, i+1
			}
		}
	}
	if best != nil {
		from, to := deviceName(userAgent)
		app := best.weak && isWebView(userAgent)
		if harmless || from < to || app {
			best, bestEnd = t.findOutside(userAgent, from, to, app || isWebView(userAgent))
		}
	}
	switch {
	case best != nil:
		return newFinding(best.bot, bestEnd-len(best.text), bestEnd)
	case !people:
		start := strings.Index(userAgent, trimmed)
		end := strings.IndexAny(trimmed, " /(;\t")
		if end <= 0 {
			end = len(trimmed)
		}
		return newFinding(t.noBrowser, start, start+end)
	}
	if start, end := unknownProduct(userAgent); start < end && !(harmless && t.inHarmlessText(userAgent, start)) {
		return newFinding(t.noBrowser, start, end)
	}
	return 0
}

// unknownProduct finds a product without a version in the user agent of a desktop
// browser, where browsers have products with versions: before or right after
// Safari/537.36 and, in Firefox 4 and later, after Firefox/120.0. The user agents of
// phones have any text there, and are not searched.
func unknownProduct(userAgent string) (start, end int) {
	rest, found := strings.CutPrefix(userAgent, "Mozilla/5.0 (")
	if !found || !strings.HasPrefix(rest, "Windows NT ") && !strings.HasPrefix(rest, "Macintosh; ") &&
		!strings.HasPrefix(rest, "X11; Linux ") && !strings.HasPrefix(rest, "X11; Ubuntu; ") &&
		!strings.HasPrefix(rest, "Linux x86_64) ") {
		return 0, 0
	}
	const like, safari, firefox = " (KHTML, like Gecko) ", " Safari/", " Gecko/20100101 Firefox/"
	if i := strings.Index(userAgent, like); i >= 0 {
		before, _, found := strings.Cut(userAgent[i+len(like):], "Chromium/")
		if found && !strings.Contains(before, "/") {
			i += len(before) // the name of a Linux distribution, which packages Chromium
		}
		start, end = versionless(userAgent, i+len(like))
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
			start, end = versionless(userAgent, i+n)
		}
	}
	return start, end
}

// versionless returns the text from userAgent[i:] up to the next blank, unless it
// is a product with a version: then start equals end.
func versionless(userAgent string, i int) (start, end int) {
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

// inHarmlessText reports whether userAgent[at] is inside a harmless text.
func (t *Table) inHarmlessText(userAgent string, at int) (harmless bool) {
	t.each(userAgent, func(p *pattern, start, end int) {
		harmless = harmless || p.bot == harmlessSign && start <= at && at < end
	})
	return harmless
}

// beats reports whether p, found later, wins over q.
func (p *pattern) beats(q *pattern) bool {
	if p.rank != q.rank {
		return p.rank > q.rank
	}
	return len(p.text) > len(q.text)
}

// deviceName returns the position of an Android client's device name: userAgent[from:to].
// It is after "Android 4.4.2; de-de; ", and before " Build/" or the end of the comment.
// A device that is called CUBOT or DROID SPYDER is a phone,
// not a bot.
func deviceName(userAgent string) (from, to int) {
	to = strings.Index(userAgent, " Build/")
	if to < 0 {
		return plainDeviceName(userAgent)
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

// plainDeviceName is deviceName for browsers that do not send the build. The device is
// the last part of "(Linux; Android 13; Spider X)", or the one before "; wv". A bot that
// names itself there adds an address or a version.
func plainDeviceName(userAgent string) (from, to int) {
	if !isWebView(userAgent) {
		return 0, 0
	}
	to = strings.Index(userAgent, ") AppleWebKit/")
	if wv := strings.TrimSuffix(userAgent[:to], "; wv"); len(wv) < to {
		to = len(wv)
	}
	android := strings.Index(userAgent[:to], "Android ")
	if android < 0 {
		return 0, 0
	}
	version := strings.IndexByte(userAgent[android:to], ';')
	if version < 0 {
		return 0, 0
	}
	from = android + version + 1
	if next := strings.IndexByte(userAgent[from:to], ';'); next >= 0 && next <= len(" en_us") {
		from += next + 1 // the language
	}
	if strings.ContainsAny(userAgent[from:to], ";/+@") {
		return 0, 0
	}
	return from, to
}

// isWebView reports whether a user agent is that of a browser or app on a phone or
// tablet. All of its usual parts must be there. Apps have any names, such as "CamScanner".
func isWebView(userAgent string) bool {
	rest, found := strings.CutPrefix(userAgent, "Mozilla/5.0 (")
	if !found {
		return false
	}
	device, rest, found := strings.Cut(rest, ") AppleWebKit/")
	if !found || strings.Contains(device, "compatible") {
		return false
	}
	_, rest, found = strings.Cut(rest, " (KHTML, like Gecko)")
	switch {
	case !found:
		return false
	case strings.HasPrefix(device, "iPhone; "), strings.HasPrefix(device, "iPad; "), strings.HasPrefix(device, "iPod"):
		return strings.Contains(rest, " Mobile/")
	case strings.HasPrefix(device, "Linux; "):
		browser := strings.Contains(rest, " Chrome/") || strings.Contains(rest, " Version/")
		return browser && strings.Contains(device, "Android ")
	}
	return false
}

// findOutside returns the best pattern that begins neither inside a harmless text
// nor in userAgent[from:to]. In an app, weak patterns do not count.
func (t *Table) findOutside(userAgent string, from, to int, app bool) (best *pattern, bestEnd int) {
	var reach [MaxUserAgent]uint16 // the end of the longest harmless text that begins here
	if from < to {
		reach[from] = uint16(to)
	}
	t.each(userAgent, func(p *pattern, start, end int) {
		if p.bot == harmlessSign {
			reach[start] = max(reach[start], uint16(end))
		}
	})
	for i := 1; i < len(userAgent); i++ {
		reach[i] = max(reach[i], reach[i-1])
	}
	t.each(userAgent, func(p *pattern, start, end int) {
		if p.bot >= 0 && !(app && p.weak) && int(reach[start]) <= start && (best == nil || p.beats(best)) {
			best, bestEnd = p, end
		}
	})
	return best, bestEnd
}

// each calls do for every pattern that matches in the user agent.
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
			if p := &a.patterns[n]; p.matchesAt(userAgent, i+1-len(p.text), i+1) {
				do(p, i+1-len(p.text), i+1)
			}
		}
	}
}
