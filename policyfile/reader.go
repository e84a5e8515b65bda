package policyfile

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fairshare"
)

// A reader reads one file and gathers its faults.
type reader struct {
	file        *File
	dir         string // files that the policy names are relative to it
	lines       []string
	faults      []*ParseError
	untold      int  // faults beyond maxFaults
	broken      bool // part of the file could not be read: what is missing is not told
	rules       []ruleNode
	usedDefault bool
	root        *node             // the whole file
	bodies      map[string]string // files that answers are read from
}

// A key is one key of a map in a policy file.
type key[T any] struct {
	name string
	read func(r *reader, n *node, into *T) // nil: a later version knows it
}

// A reading is what readMap has seen.
type reading struct {
	node   *node
	values map[string]*node // of known keys
	keys   map[string]*node
}

func (g *reading) has(name string) bool { return g.values[name] != nil }

// at returns where the first of the given keys stands, else the map itself.
func (g *reading) at(names ...string) *node {
	for _, name := range names {
		if n := g.keys[name]; n != nil {
			return n
		}
	}
	return g.node
}

// readMap reads a map with known keys. It returns nil for what is no map.
func readMap[T any](r *reader, n *node, what, example string, keys []key[T], into *T) *reading {
	if n.kind != mapNode {
		if n.kind == nullNode && r.broken {
			return nil
		}
		hint := ""
		switch {
		case n.kind == nullNode:
			hint = fmt.Sprintf("is what belongs to %s indented further than it?", what)
		case example != "":
			hint = fmt.Sprintf("%s: %s", what, example)
		}
		r.fault(n, hint, "%s: a map is needed, not %s", what, n.describe())
		return nil
	}
	got := &reading{node: n, values: map[string]*node{}, keys: map[string]*node{}}
	for _, e := range n.entries {
		name := e.key.text
		i := slices.IndexFunc(keys, func(k key[T]) bool { return k.name == name })
		switch {
		case i < 0 && r.full():
			r.untold++
		case i < 0:
			r.unknownKey(e, what, names(keys))
		case got.has(name):
			r.fault(e.key, "", "%s stands twice in this map, first in line %d", name, got.keys[name].line)
		default:
			got.values[name], got.keys[name] = e.value, e.key
			if keys[i].read == nil {
				r.notYet(e.key, name)
			} else {
				keys[i].read(r, e.value, into)
			}
		}
	}
	return got
}

// names returns the keys that this version knows.
func names[T any](keys []key[T]) []string {
	var list []string
	for _, k := range keys {
		if k.read != nil {
			list = append(list, k.name)
		}
	}
	return list
}

// missing tells of a key that is needed, unless something of the file could
// not be read.
func (r *reader) missing(n *node, hint, format string, args ...any) {
	if !r.broken {
		r.fault(n, hint, format, args...)
	}
}

func (r *reader) notYet(n *node, what string) {
	r.fault(n, "", "%s is not yet in this version", what)
}

// unknownKey finds out what was meant.
func (r *reader) unknownKey(e entry, what string, known []string) {
	n := e.key
	word := strings.ToLower(n.text)
	hint := ""
	before, after, colon := strings.Cut(n.text, ":")
	switch place := places()[word]; {
	case colon && slices.Contains(known, before):
		hint = fmt.Sprintf("a space is needed after the colon: %s: %s", before, after)
	case slices.Contains(known, word):
		hint = fmt.Sprintf("did you mean %q?", word)
	case slices.Contains(known, slips[word]):
		hint = fmt.Sprintf("did you mean %q?", slips[word])
	case place != "" && place != what:
		hint = fmt.Sprintf("%s belongs into %s", word, place)
	case didYouMean(word, known) != "":
		hint = didYouMean(word, known)
	case word == "enabled" || word == "disabled":
		hint = "a rule that is out of use is left out, or has dry_run: true"
	case e.value.kind == nullNode && e.value.line == n.line:
		hint = "several values stand in brackets: [a, b]"
	default:
		hint = "known here: " + strings.Join(known, ", ")
	}
	r.fault(n, hint, "unknown key: %s", quote(n.text))
}

// slips are words of other programs for what we know by another.
var slips = map[string]string{
	"whitelist": "allow", "allowlist": "allow", "skip": "allow", "accept": "allow", "pass": "allow",
	"deny": "block", "reject": "block", "drop": "block", "blacklist": "block", "forbid": "block",
	"ip": "addr", "client": "addr", "cidr": "addr", "remote_addr": "addr", "source": "addr",
	"url": "path", "uri": "path", "location": "path", "ua": "user_agent", "agent": "user_agent", "verb": "method", "domain": "host",
	"rate": "requests", "max_requests": "requests", "hits": "requests", "quota": "requests", "connections": "concurrent", "codes": "statuses",
	"window": "per", "period": "per", "interval": "per", "every": "per", "time": "per", "duration": "for", "length": "for", "maxretry": "after", "findtime": "within", "bantime": "for",
	"key": "by", "group_by": "by", "backend": "upstream", "origin": "upstream", "target": "upstream", "proxy_pass": "upstream",
	"port": "listen", "bind": "listen", "address": "listen", "shadow": "dry_run", "test": "dry_run", "log_only": "dry_run", "detect_only": "dry_run",
	"import": "use", "include": "use", "code": "status", "text": "body", "message": "body", "html": "body", "location_header": "redirect",
	"certificate": "cert", "cert_file": "cert", "key_file": "key", "real_ip_header": "header", "trusted": "trusted_proxies", "proxies": "trusted_proxies",
}

// describe tells what stands there instead of what is needed.
func (n *node) describe() string {
	if n.kind == scalarNode {
		return quote(n.text)
	}
	return n.kind.String()
}

// quote returns a text of the file as messages show it: short, and harmless
// to a terminal.
func quote(s string) string {
	if len(s) > 60 {
		cut := 57
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "..."
	}
	return strconv.Quote(s)
}

// text reads a text: any single value but nothing.
func (r *reader) text(n *node, what string) (string, bool) {
	if n.kind != scalarNode {
		hint := ""
		if n.kind == nullNode {
			if r.broken {
				return "", false
			}
			if what == "user_agent" {
				hint = `no user agent is written ""`
			}
		} else if n.kind == mapNode {
			hint = "a text with { } or \": \" in it needs quotes"
		}
		r.fault(n, hint, "%s: a text is needed, not %s", what, n.describe())
		return "", false
	}
	return n.text, true
}

// list returns the items of a list; a single value is a list of one. An empty
// list is a fault: no value could ever fit.
func (r *reader) list(n *node, what string) []*node {
	switch n.kind {
	case listNode:
		if len(n.items) == 0 {
			r.fault(n, "leave the key out", "%s: the list is empty", what)
		}
		return n.items
	case nullNode:
		r.missing(n, "", "%s: a value is needed", what)
		return nil
	}
	return []*node{n}
}

// boolean reads true or false.
func (r *reader) boolean(n *node, what string) bool {
	if n.kind == scalarNode && !n.quoted {
		switch n.text {
		case "true", "True", "TRUE":
			return true
		case "false", "False", "FALSE":
			return false
		}
	}
	hint := ""
	switch {
	case n.kind != scalarNode:
	case slices.Contains([]string{"yes", "on", "y", "1", "true"}, strings.ToLower(n.text)):
		hint = what + ": true"
	case slices.Contains([]string{"no", "off", "n", "0", "false"}, strings.ToLower(n.text)):
		hint = what + ": false"
	}
	r.fault(n, hint, "%s: true or false is needed, not %s", what, n.describe())
	return false
}

// yes reads a key that is either left out or true.
func (r *reader) yes(n *node, what string) {
	if n.kind == scalarNode && !n.quoted && strings.EqualFold(n.text, "false") {
		r.fault(n, "leave the key out", "%s: only true can stand here", what)
		return
	}
	r.boolean(n, what)
}

// integer reads a whole number from least to most. What is out of bounds, or
// no number, is a fault, and 0 is returned.
func (r *reader) integer(n *node, what string, least, most int64) int64 {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a whole number is needed, not %s", what, n.describe())
		return 0
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	digits := strings.TrimLeft(n.text, "+-")
	if err != nil && (digits == "" || strings.Trim(digits, "0123456789") != "") || digits != "0" && strings.HasPrefix(digits, "0") {
		r.fault(n, numberHint(n.text, what), "%s: a whole number is needed, not %s", what, n.describe())
		return 0
	}
	if err != nil || v < least || v > most {
		r.fault(n, "", "%s: %s is not between %d and %d", what, shorten(n.text), least, most)
		return 0
	}
	return v
}

// numberHint says what is wrong with a count.
func numberHint(s, what string) string {
	count, window, found := strings.Cut(s, "/")
	if count = strings.TrimSpace(count); found && plainDigits(count) {
		return fmt.Sprintf("%s: %s, per: %s", what, count, perWord(window))
	}
	if c, ok := strings.CutSuffix(s, "r/s"); ok && plainDigits(strings.TrimSpace(c)) {
		return fmt.Sprintf("%s: %s, per: 1s", what, strings.TrimSpace(c))
	}
	if c, ok := strings.CutSuffix(s, "r/m"); ok && plainDigits(strings.TrimSpace(c)) {
		return fmt.Sprintf("%s: %s, per: 1m", what, strings.TrimSpace(c))
	}
	if bare := strings.NewReplacer("_", "", ",", "", "'", "", " ", "").Replace(s); bare != s && plainDigits(bare) {
		return fmt.Sprintf("%s: %s", what, bare)
	}
	if strings.HasSuffix(s, "%") {
		return "a share in % is for cpu and time; this counts"
	}
	if c, ok := strings.CutSuffix(strings.ToLower(s), "k"); ok && plainDigits(c) {
		return fmt.Sprintf("%s: %s000", what, c)
	}
	return ""
}

// perWord turns what others write behind a slash into a duration.
func perWord(s string) string {
	s = strings.TrimSpace(s)
	switch s {
	case "s", "sec", "second":
		return "1s"
	case "m", "min", "minute":
		return "1m"
	case "h", "hour":
		return "1h"
	case "d", "day":
		return "1d"
	}
	return shorten(s)
}

func plainDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func shorten(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

// number reads a number from least to most, with a fraction.
func (r *reader) number(n *node, what string, least, most float64) float64 {
	if n.kind == scalarNode && !strings.ContainsAny(n.text, "_xXpPnN") {
		if v, err := strconv.ParseFloat(n.text, 64); err == nil && !math.IsNaN(v) {
			if v >= least && v <= most {
				return v
			}
			r.fault(n, "", "%s: %s is not between %v and %v", what, shorten(n.text), least, most)
			return 0
		}
	}
	r.fault(n, "", "%s: a number is needed, not %s", what, n.describe())
	return 0
}

// maxDuration is longer than anything here may last.
const maxDuration = 100 * 365 * 24 * time.Hour

// units of durations, the longest names first.
var durationUnits = []struct {
	name string
	unit time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// duration reads a duration from least to most. What is out of bounds, or no
// duration, is a fault, and 0 is returned.
func (r *reader) duration(n *node, what string, least, most time.Duration) time.Duration {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a duration is needed, as 10s or 1h30m, not %s", what, n.describe())
		return 0
	}
	d, ok := parseDuration(n.text)
	if !ok {
		r.fault(n, durationHint(n.text, what), "%s: a duration is needed, as 10s or 1h30m, not %s", what, n.describe())
		return 0
	}
	if d < least || d > most {
		r.fault(n, "", "%s: %s is not between %s and %s", what, shorten(n.text), FormatDuration(least), FormatDuration(most))
		return 0
	}
	return d
}

// parseDuration reads numbers with units ms, s, m, h, d, joined. A fraction is
// allowed. More than maxDuration is cut to just above it.
func parseDuration(s string) (time.Duration, bool) {
	var sum float64
	var whole time.Duration // exact, unless there are fractions
	exact := true
	if s == "" {
		return 0, false
	}
	for s != "" {
		i := 0
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
			i++
		}
		number := s[:i]
		v, err := strconv.ParseFloat(number, 64)
		if i == 0 || i > 18 || err != nil || number[0] == '.' || number[i-1] == '.' {
			return 0, false
		}
		var unit time.Duration
		for _, u := range durationUnits {
			if rest, ok := strings.CutPrefix(s[i:], u.name); ok && (rest == "" || rest[0] >= '0' && rest[0] <= '9') {
				unit, s = u.unit, rest
				break
			}
		}
		if unit == 0 {
			return 0, false
		}
		if sum += v * float64(unit); sum > float64(maxDuration) {
			return maxDuration + 1, true
		}
		if strings.Contains(number, ".") {
			exact = false
		} else if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			whole += time.Duration(n) * unit
		}
	}
	if exact {
		return whole, true
	}
	return time.Duration(math.Round(sum)), true
}

func durationHint(s, what string) string {
	if plainDigits(s) {
		return fmt.Sprintf("%s needs a unit: %s: %ss", what, what, shorten(s))
	}
	words := strings.NewReplacer("seconds", "s", "second", "s", "secs", "s", "sec", "s", "minutes", "m", "minute", "m", "mins", "m", "min", "m",
		"hours", "h", "hour", "h", "hrs", "h", "days", "d", "day", "d", " ", "").Replace(strings.ToLower(s))
	if plain := strings.Trim(words, "0123456789."); plain == words && words != "" && slices.ContainsFunc(durationUnits, func(u struct {
		name string
		unit time.Duration
	}) bool {
		return u.name == words
	}) {
		words = "1" + words
	}
	if weeks, ok := strings.CutSuffix(strings.TrimRight(strings.ReplaceAll(strings.ToLower(s), " ", ""), "eks"), "w"); ok && plainDigits(weeks) && len(weeks) < 4 {
		n, _ := strconv.Atoi(weeks)
		words = fmt.Sprintf("%dd", 7*n)
	}
	if _, ok := parseDuration(words); ok {
		return fmt.Sprintf("%s: %s", what, words)
	}
	return "units are ms, s, m, h and d, joined: 1h30m"
}

// FormatDuration returns a duration as a policy file spells it: "1h30m".
// Fractions of a millisecond are rounded up.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	d = (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	var b strings.Builder
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / u.unit; n > 0 && (u.name != "d" || n > 1) { // 24h and 36h read better than 1d
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

var sizeUnits = []struct {
	name string
	unit int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// bytes reads a size from least to most.
func (r *reader) bytes(n *node, what string, least, most int64) int64 {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a size is needed, as 500MB or 1GiB, not %s", what, n.describe())
		return 0
	}
	v, ok := parseSize(n.text)
	if !ok {
		r.fault(n, sizeHint(n.text, what), "%s: a size is needed, as 500MB or 1GiB, not %s", what, n.describe())
		return 0
	}
	if v < least || v > most {
		r.fault(n, "", "%s: %s is not between %s and %s", what, shorten(n.text), FormatSize(least), FormatSize(most))
		return 0
	}
	return v
}

// parseSize reads a number with a unit. What is larger than an int64 is cut
// to the largest.
func parseSize(s string) (int64, bool) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		whole, fraction, dotted := strings.Cut(number, ".")
		if !plainDigits(whole) || dotted && !plainDigits(fraction) || dotted && u.unit == 1 {
			return 0, false
		}
		if n, err := strconv.ParseInt(whole, 10, 64); !dotted && err == nil && n <= math.MaxInt64/u.unit {
			return n * u.unit, true
		}
		v, err := strconv.ParseFloat(number, 64)
		if v *= float64(u.unit); err != nil || v >= math.MaxInt64 {
			return math.MaxInt64, true
		}
		return int64(v), true
	}
	return 0, false
}

func sizeHint(s, what string) string {
	if plainDigits(s) {
		unit := "B"
		if len(s) < 6 {
			unit = "MB"
		}
		return fmt.Sprintf("%s needs a unit: %s: %s%s", what, what, shorten(s), unit)
	}
	if count, window, ok := strings.Cut(s, "/"); ok {
		return fmt.Sprintf("%s: %s, per: %s", what, strings.TrimSpace(count), perWord(window))
	}
	squeezed := strings.ReplaceAll(s, " ", "")
	for _, suffixes := range [][3]string{{"kB", "kb", "k"}, {"MB", "mb", "m"}, {"GB", "gb", "g"}, {"KiB", "kib", "ki"}, {"MiB", "mib", "mi"}, {"GiB", "gib", "gi"}} {
		for _, suffix := range suffixes[1:] {
			if number, ok := strings.CutSuffix(strings.ToLower(squeezed), suffix); ok {
				if _, ok := parseSize(number + suffixes[0]); ok {
					return fmt.Sprintf("%s: %s", what, number+suffixes[0])
				}
			}
		}
	}
	return "units are B, kB, MB, GB, KiB, MiB and GiB"
}

// FormatSize returns a size as a policy file spells it: "64MiB".
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}} {
		if n >= u.unit && n%u.unit == 0 {
			return fmt.Sprintf("%d%s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}

// addrs reads prefixes and addresses, and names of lists when lists is given.
func (r *reader) addrs(n *node, what string, lists map[string]*AddrSet) *AddrSet {
	set := &AddrSet{}
	for _, item := range r.list(n, what) {
		s, ok := r.text(item, what)
		if !ok {
			continue
		}
		if list := lists[s]; list != nil {
			set.addList(s, list)
		} else if prefix, err := parsePrefix(s); err == nil {
			set.add(prefix)
		} else if looksLikeAddr(s) && !strings.Contains(s, ",") {
			r.fault(item, "", "%s: %v", what, err)
		} else if lists == nil {
			r.fault(item, "", "%s: %s is no address and no prefix", what, quote(s))
		} else if !r.broken {
			known := make([]string, 0, len(lists))
			for name := range lists {
				known = append(known, name)
			}
			slices.Sort(known)
			hint := didYouMean(s, known)
			if strings.Contains(s, ",") {
				hint = "several values stand in brackets: [a, b]"
			}
			r.fault(item, hint, "%s: %s is no address, no prefix, and no list has this name", what, quote(s))
		}
	}
	return set
}

func looksLikeAddr(s string) bool {
	return strings.ContainsAny(s, ":/") || s != "" && strings.Trim(s, "0123456789./*xX-") == ""
}

// parsePrefix reads a prefix or an address; an IPv4-mapped one is IPv4, and
// bits behind the length are dropped.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s has a zone: leave out all from %% on", quote(s))
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is no address and no prefix", quote(s))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s is wider than all of IPv4: 0.0.0.0/0 is meant, or ::/0", quote(s))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

var _ fairshare.AddrSet = (*AddrSet)(nil)
