package accesslog

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// A format is a parser with its known properties.
type format struct {
	name       string
	parser     parser
	directives bool // has #Fields lines
}

// facts are the properties of a file that its first lines show.
type facts struct {
	has        Fields
	resolution time.Duration
	zoneless   bool
}

// families are the parsers to choose from; the first wins a tie.
var families = []struct {
	parser     parser
	directives bool
	names      []string // what Options.Format may call it
}{
	{clf, false, []string{"combined", "common", "vhost-combined", "combined-host"}},
	{clfTraefik, false, []string{"traefik-clf"}},
	{caddyParser{}, false, []string{"caddy-json"}},
	{traefikParser{}, false, []string{"traefik-json"}},
	{azureParser{}, false, []string{"azure-json"}},
	{flatJSONParser{names: flatNames}, false, []string{"nginx-json"}},
	{w3cParser{}, true, []string{"iis-w3c", "cloudfront"}},
	{haproxyParser{}, false, []string{"haproxy-http"}},
	{elbParser{}, false, []string{"aws-alb", "aws-elb"}},
	{squidParser{}, false, []string{"squid"}},
	{atlassianParser{}, false, []string{"atlassian"}},
	{tsvParser{}, false, []string{"tsv"}},
}

var (
	clf        = &clfParser{}
	clfTraefik = &clfParser{escape: escapeQuote}
)

// Formats returns the names that Options.Format accepts.
func Formats() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.names...)
	}
	return names
}

// A detector determines the format of a file, from the options or from its first lines. If none of
// the first lines has a known format, it checks later ones, because programs may log much before
// the first request.
type detector struct {
	opts   Options
	done   bool // the format is decided
	format format
	found  facts

	window [][]byte // lines to check together
	bytes  int      // of window
	lines  int      // of window, directives not counted
	layout *layout  // #Fields before window
	seen   int      // lines before window
	text   int      // bytes before window
	utf16  bool
}

const (
	lookAtLines = 400
	lookAtBytes = 256 << 10
	giveUpAfter = 8 << 20 // most bytes without a line of a known format
)

func newDetector(opts Options) (*detector, error) {
	t := &detector{opts: opts}
	if opts.Format != "" {
		var err error
		if t.format, err = parseFormat(opts.Format); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// add checks the lines of b, which follow the lines added before.
func (t *detector) add(b *block) {
	if b.first == 1 {
		t.utf16 = bytes.HasPrefix(b.text, []byte{0xFF, 0xFE}) || bytes.HasPrefix(b.text, []byte{0xFE, 0xFF})
	}
	t.seen += len(b.batch.Skipped)
	for text := b.text; len(text) > 0 && !t.done; {
		line := firstLine(text)
		text = text[min(len(line)+1, len(text)):]
		t.bytes += len(line)
		if line = trim(line); len(line) > 0 {
			t.window = append(t.window, line)
			if line[0] != '#' {
				t.lines++
			}
		}
		if t.lines >= lookAtLines || t.bytes >= lookAtBytes {
			t.checkWindow()
		}
	}
}

// checkWindow checks the window and begins a new one.
func (t *detector) checkWindow() {
	if t.opts.Format != "" {
		t.found, t.done = scoreLines(t.format.parser, t.window, t.layout, t.opts.Zone).facts, true
		return
	}
	var best score
	for _, family := range families {
		s := scoreLines(family.parser, t.window, t.layout, t.opts.Zone)
		if s.better(best) {
			best = s
			t.format, _ = parseFormat(s.name(family.names))
			t.found = s.facts
		}
		best.layout = s.layout
	}
	t.seen += t.lines
	t.text += t.bytes
	t.layout = best.layout
	t.done = best.read > 0 || t.text >= giveUpAfter
	t.window, t.lines, t.bytes = nil, 0, 0
}

// result returns the format.
func (t *detector) result() (format, facts, error) {
	if !t.done {
		t.checkWindow()
	}
	switch {
	case t.format.parser != nil:
	case t.layout != nil && t.layout.columns != nil:
		t.format, _ = parseFormat("iis-w3c") // its lines are skipped with a reason
	case t.seen == 0:
		t.format.parser = clf // the file has no lines
	case t.utf16:
		return format{}, facts{}, &FormatError{Msg: "the text is UTF-16",
			Hint: "convert it first: iconv -f UTF-16 -t UTF-8 LOG"}
	default:
		return format{}, facts{}, &FormatError{
			Msg: fmt.Sprintf("none of the first %d lines is an access-log line of a format known here", t.seen),
			Hint: "name the format (" + strings.Join(Formats(), ", ") + "), or give the server's own format string: " +
				`--format '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'`,
		}
	}
	return t.format, t.found, nil
}

// aliases are other names of formats.
var aliases = map[string]string{
	"nginx": "combined", "apache": "combined", "ncsa": "common", "clf": "common", "vhost": "vhost-combined",
	"caddy":   "caddy-json",
	"traefik": "traefik-clf", "json": "nginx-json", "iis": "iis-w3c", "w3c": "iis-w3c", "haproxy": "haproxy-http",
	"alb": "aws-alb",
	"elb": "aws-elb", "azure": "azure-json",
}

// parseFormat reads a name or a format string.
func parseFormat(s string) (format, error) {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "_", "-")
	if full, ok := aliases[name]; ok {
		name = full
	}
	for _, family := range families {
		for _, known := range family.names {
			if known == name {
				return format{name: name, parser: family.parser, directives: family.directives}, nil
			}
		}
	}
	if isFormatString(s) {
		return compileFormat(s)
	}
	return format{}, &FormatError{Format: s, Msg: "no such format",
		Hint: "known are " + strings.Join(Formats(), ", ") + ", or a server's format string"}
}

// A score says how well a parser reads the first lines of a file.
type score struct {
	facts
	read   int           // lines
	almost int           // lines skipped only because their client is not an address
	shapes map[shape]int // number of read lines by shape

	cloudfront bool    // the last line was CloudFront's
	layout     *layout // the last #Fields
}

// scoreLines reads lines with p. layout applies at their start.
func scoreLines(p parser, lines [][]byte, layout *layout, zone *time.Location) score {
	w := &worker{parser: p, clock: clock{zone: zone}, layout: layout}
	s := score{shapes: map[shape]int{}}
	var batch Batch
	for _, line := range lines {
		batch.Entries, batch.Skipped = batch.Entries[:0], batch.Skipped[:0]
		w.line(line, 1, &batch)
		for _, e := range batch.Entries {
			s.read++
			s.shapes[w.shape]++
			s.has |= e.Has
			s.resolution = finer(s.resolution, e.Time)
		}
		for _, skip := range batch.Skipped {
			if skip.Reason == reasonClient {
				s.almost++
				s.shapes[w.shape]++
			}
		}
	}
	s.zoneless, s.cloudfront = w.clock.zoneless, w.cloudfront
	s.layout = w.layout
	return s
}

func (s score) better(than score) bool {
	if s.read != than.read {
		return s.read > than.read
	}
	return s.almost > than.almost
}

// finer returns the unit of t if it is smaller than unit; unit 0 means unknown.
func finer(unit time.Duration, t time.Time) time.Duration {
	of := time.Second
	switch ns := t.Nanosecond(); {
	case ns == 0:
	case ns%1e6 == 0:
		of = time.Millisecond
	case ns%1e3 == 0:
		of = time.Microsecond
	default:
		of = time.Nanosecond
	}
	if unit == 0 {
		return of
	}
	return min(unit, of)
}

// name picks the name of the format that most lines have.
func (s score) name(names []string) string {
	switch {
	case len(names) == 1:
		return names[0]
	case names[0] == "iis-w3c":
		return map[bool]string{false: names[0], true: names[1]}[s.cloudfront]
	}
	most, count := shape(0), -1
	for shape, n := range s.shapes {
		if n > count || n == count && shape > most {
			most, count = shape, n
		}
	}
	switch {
	case names[0] == "aws-alb":
		return map[bool]string{true: names[0], false: names[1]}[most&hasType != 0]
	case most&hasRouter != 0:
		return "traefik-clf"
	case most&hasVhost != 0:
		return "vhost-combined"
	case most&hasMiddle != 0:
		return "combined-host"
	case most&hasAgent != 0:
		return "combined"
	}
	return "common"
}
