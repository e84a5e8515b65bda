package policyfile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairshare/internal/prose"
)

// A reader reads one file and collects its faults.
type reader struct {
	file        *File
	dir         string // files that the policy names are relative to it
	lines       []string
	includes    []include // files whose lines follow
	base        int       // of the included file whose syntax is read: lines before it
	faults      []*ParseError
	omitted     int  // number of faults beyond maxFaults
	broken      bool // part of the file could not be read: missing keys are not reported
	rules       []ruleNode
	usedDefault bool
	root        *node             // the whole file
	bodies      map[string]string // contents of the files of answers, by path

	options    Options
	bots       botTable // nil means that names of bots are not checked
	botsLoaded bool
	operators  botTable // operators of bots; nil if the table is not loaded
	secrets    []string // texts that messages must not show
}

// A key is one key of a map in a policy file.
type key[T any] struct {
	name string
	read func(r *reader, n *node, into *T)
}

// A reading is the result of readMap.
type reading struct {
	node   *node
	values map[string]*node // by known key
	keys   map[string]*node // the nodes of the keys themselves
}

func (g *reading) has(name string) bool { return g.values[name] != nil }

// at returns the first of the given keys that the map has, else the map itself.
func (g *reading) at(names ...string) *node {
	for _, name := range names {
		if n := g.keys[name]; n != nil {
			return n
		}
	}
	return g.node
}

// readMap reads a map with known keys. It returns nil if n is not a map.
func readMap[T any](r *reader, n *node, what, example string, keys []key[T], into *T) *reading {
	if n.kind != mapNode {
		if n.kind == nullNode && r.broken {
			return nil
		}
		hint := ""
		switch {
		case n.kind == nullNode:
			hint = fmt.Sprintf("is the content of %s indented further than the key?", what)
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
		case i < 0 && r.tooManyFaults():
			r.omitted++
		case i < 0:
			r.unknownKey(e, what, names(keys))
		case got.has(name):
			r.fault(e.key, "", "%s is in this map twice, first in line %d", name, r.lineOf(got.keys[name]))
		default:
			got.values[name], got.keys[name] = e.value, e.key
			keys[i].read(r, e.value, into)
		}
	}
	return got
}

func names[T any](keys []key[T]) []string {
	var list []string
	for _, k := range keys {
		list = append(list, k.name)
	}
	return list
}

// missing reports a required key that is missing, unless part of the file could
// not be read.
func (r *reader) missing(n *node, hint, format string, args ...any) {
	if !r.broken {
		r.fault(n, hint, format, args...)
	}
}

// unknownKey reports an unknown key, with the key that was probably meant.
func (r *reader) unknownKey(e entry, what string, known []string) {
	n := e.key
	word := strings.ToLower(n.text)
	hint := ""
	before, after, colon := strings.Cut(n.text, ":")
	switch location := keyLocations()[word]; {
	case word == "suspected_proxies":
		hint = "trusted_proxies: [] counts such peers as one client, and so does unnamed_proxies: ignore if other proxies are trusted; otherwise the key is not needed"
	case word == "languages" && what == "waiting_room":
		hint = "texts of the waiting room are among those of all answers: answers: {" + languagesExample + "}"
	case colon && slices.Contains(known, before):
		hint = fmt.Sprintf("a space is needed after the colon: %s: %s", before, after)
	case slices.Contains(known, word):
		hint = fmt.Sprintf("did you mean %q?", word)
	case slices.Contains(known, synonyms[word]):
		hint = fmt.Sprintf("did you mean %q?", synonyms[word])
	case location != "" && location != what:
		hint = fmt.Sprintf("%s belongs in %s", word, location)
	case prose.DidYouMean(word, known) != "":
		hint = prose.DidYouMean(word, known)
	case word == "enabled" || word == "disabled":
		hint = "remove a rule that is not in use, or set dry_run: true"
	case e.value.kind == nullNode && e.value.line == n.line:
		hint = "write several values in brackets: [a, b]"
	default:
		hint = "known keys: " + strings.Join(known, ", ")
	}
	r.fault(n, hint, "unknown key: %s", quote(n.text))
}

// synonyms maps keys of other programs, and usual mistakes, to our keys.
var synonyms = map[string]string{
	"label": "labels", "bot": "bots",
	"whitelist": "allow", "allowlist": "allow", "skip": "allow", "accept": "allow", "pass": "allow",
	"honeypot": "trap", "honeytrap": "trap",
	"deny": "block", "reject": "block", "drop": "block", "blacklist": "block", "forbid": "block",
	"ip": "addr", "client": "addr", "cidr": "addr", "remote_addr": "addr", "source": "addr",
	"url": "path", "uri": "path", "location": "path", "ua": "user_agent", "agent": "user_agent", "verb": "method",
	"domain": "host",
	"rate":   "requests", "max_requests": "requests", "hits": "requests", "quota": "requests",
	"connections": "concurrent", "codes": "statuses",
	"window": "per", "period": "per", "interval": "per", "every": "per", "time": "per", "duration": "for",
	"length": "for", "maxretry": "after", "findtime": "within", "bantime": "for",
	"key": "by", "group_by": "by", "backend": "upstream", "origin": "upstream", "target": "upstream",
	"proxy_pass": "upstream",
	"port":       "listen", "bind": "listen", "address": "listen", "shadow": "dry_run", "test": "dry_run",
	"log_only": "dry_run", "detect_only": "dry_run",
	"import": "use", "include": "use", "code": "status", "text": "body", "message": "body", "html": "body",
	"location_header": "redirect",
	"log":             "journal", "accesslog": "access_log",
	"otel": "opentelemetry", "otlp": "opentelemetry", "tracing": "opentelemetry", "open_telemetry": "opentelemetry",
	"logging": "journal", "filename": "file", "max_size": "max",
	"rotate": "keep", "backups": "keep", "queries": "query",
	"server_name": "hosts", "domains": "hosts", "vhosts": "hosts", "underscores_in_headers": "underscores",
	"http2":        "h2c",
	"read_timeout": "timeout", "proxy_read_timeout": "timeout", "response_timeout": "timeout",
	"max_connections":    "connections",
	"connections_per_ip": "connections_per_addr", "per_addr": "connections_per_addr", "headers": "fields",
	"header_size": "header", "max_streams": "streams",
	"path": "file", "refresh": "every", "update": "every", "reload": "every", "dnsbl": "listed", "rbl": "listed",
	"blocklist": "listed",
	"crawler":   "bot", "crawlers": "bot", "robot": "bot", "rdns": "hostname", "ptr": "hostname",
	"reverse_dns": "hostname", "resolver": "dns", "nameserver": "server",
	"redis": "store", "valkey": "store", "cluster": "store",
	"db": "registry", "storage": "registry", "ttl": "age", "max_age": "age", "retention": "age",
	"labels": "label", "tag": "label", "tags": "label",
	"score": "threat", "days": "age", "types": "type", "database": "table", "session": "sessions",
	"form": "from", "cookie": "cookies", "ranges": "refresh",
	"cpus": "cores", "processors": "cores", "pidfile": "pid_file", "pid": "pid_file", "unit": "service",
	"sample": "every", "header_name": "header",
	"cpu_time": "cpu", "units": "cost", "complexity": "cost", "slots": "capacity", "workers": "capacity",
	"max_wait": "wait", "queue_size": "queue", "weight": "weights", "fair": "share", "fairness": "share",
	"certificate": "cert", "cert_file": "cert", "key_file": "key", "real_ip_header": "header",
	"trusted": "trusted_proxies", "proxies": "trusted_proxies",
}

// describe returns the value for messages of the form "… is needed, not VALUE".
func (n *node) describe() string {
	if n.kind == scalarNode {
		return quote(n.text)
	}
	return n.kind.String()
}

// quote returns a text of the file for messages: short, quoted, and safe for a
// terminal.
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

// text reads a text: any scalar that is not null.
func (r *reader) text(n *node, what string) (string, bool) {
	if n.kind != scalarNode {
		hint := ""
		if n.kind == nullNode {
			if r.broken {
				return "", false
			}
			if what == "user_agent" {
				hint = `write "" for no user agent`
			}
		} else if n.kind == mapNode {
			hint = "a text with { } or \": \" in it needs quotes"
		}
		r.fault(n, hint, "%s: a text is needed, not %s", what, n.describe())
		return "", false
	}
	return n.text, true
}

// list returns the items of a list; a single value counts as a list of one item.
// An empty list is a fault: no value could ever match it.
func (r *reader) list(n *node, what string) []*node {
	switch n.kind {
	case listNode:
		if len(n.items) == 0 {
			r.fault(n, "remove the key", "%s: the list is empty", what)
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

// onlyTrue reads a key whose only valid value is true.
func (r *reader) onlyTrue(n *node, what string) {
	if n.kind == scalarNode && !n.quoted && strings.EqualFold(n.text, "false") {
		r.fault(n, "remove the key", "%s: only true is allowed here", what)
		return
	}
	r.boolean(n, what)
}

// integer reads a whole number from least to most. Any other value is a fault, and
// 0 is returned.
func (r *reader) integer(n *node, what string, least, most int64) int64 {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a whole number is needed, not %s", what, n.describe())
		return 0
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	digits := strings.TrimLeft(n.text, "+-")
	if err != nil && (digits == "" || strings.Trim(digits, "0123456789") != "") ||
		digits != "0" && strings.HasPrefix(digits, "0") {
		r.fault(n, numberHint(n.text, what), "%s: a whole number is needed, not %s", what, n.describe())
		return 0
	}
	if err != nil || v < least || v > most {
		r.fault(n, "", "%s: %s is not between %d and %d", what, shorten(n.text), least, most)
		return 0
	}
	return v
}

// numberHint returns a fix for a text that is not a whole number.
func numberHint(s, what string) string {
	count, window, found := strings.Cut(s, "/")
	if count = strings.TrimSpace(count); found && plainDigits(count) {
		return fmt.Sprintf("%s: %s, per: %s", what, count, windowText(window))
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
		return "only cpu and time take a share in %"
	}
	if c, ok := strings.CutSuffix(strings.ToLower(s), "k"); ok && plainDigits(c) {
		return fmt.Sprintf("%s: %s000", what, c)
	}
	return ""
}

// windowText returns the duration for a unit after a slash, such as "1s" for the
// "s" in "10r/s".
func windowText(s string) string {
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

// number reads a number, maybe with a fraction, from least to most. Any other value
// is a fault, and 0 is returned.
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
