package accesslog

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// A format is a way to read lines, and what is known of it beforehand.
type format struct {
	name       string
	parser     parser
	directives bool // has #Fields lines
}

// facts is what the first lines of a file tell about it.
type facts struct {
	has        Fields
	resolution time.Duration
	zoneless   bool
}

// lookAt is how many lines are looked at to tell a format.
const lookAt = 400

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

// Formats returns the names that Options.Format takes.
func Formats() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.names...)
	}
	return names
}

// tell finds out the format, from the options or from the lines in first.
func (f *File) tell(first *block, opts Options) error {
	lines, all := firstLines(first.text)
	if opts.Format != "" {
		format, err := parseFormat(opts.Format)
		if err != nil {
			return err
		}
		f.format = format
		f.found = look(format.parser, lines, opts.Zone).facts
		return nil
	}
	if bytes.HasPrefix(first.text, []byte{0xFF, 0xFE}) || bytes.HasPrefix(first.text, []byte{0xFE, 0xFF}) {
		return &FormatError{Msg: "the text is UTF-16", Hint: "convert it first: iconv -f UTF-16 -t UTF-8 LOG"}
	}
	var best sight
	for _, family := range families {
		s := look(family.parser, lines, opts.Zone)
		if s.layout != nil && best.layout == nil {
			best.layout = s.layout
		}
		if s.better(best) {
			best = s
			f.format, _ = parseFormat(s.name(family.names))
		}
	}
	if f.format.parser == nil && best.layout != nil {
		f.format, _ = parseFormat("iis-w3c") // its lines are skipped, with the reason
	}
	if f.format.parser != nil {
		f.found = best.facts
		return nil
	}
	if all == 0 && len(first.batch.Skipped) == 0 {
		f.format.parser = clf // nothing to read
		return nil
	}
	return &FormatError{
		Msg: fmt.Sprintf("none of the first %d lines is an access-log line of a format known here", max(all, 1)),
		Hint: "name the format (" + strings.Join(Formats(), ", ") + "), or give the server's own format string: " +
			`--format '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'`,
	}
}

// parseFormat takes a name or a format string.
func parseFormat(s string) (format, error) {
	for _, family := range families {
		for _, name := range family.names {
			if strings.EqualFold(name, strings.TrimSpace(s)) {
				return format{name: name, parser: family.parser, directives: family.directives}, nil
			}
		}
	}
	if isFormatString(s) {
		return compileFormat(s)
	}
	return format{}, &FormatError{Format: s, Msg: "no such format", Hint: "known are " + strings.Join(Formats(), ", ") + ", or a server's format string"}
}

// firstLines returns the first lines of a text, trimmed, directives too, and
// how many of them are neither blank nor directives.
func firstLines(text []byte) (lines [][]byte, n int) {
	for len(text) > 0 && n < lookAt {
		line := firstLine(text)
		text = text[min(len(line)+1, len(text)):]
		if line = trim(line); len(line) == 0 {
			continue
		}
		lines = append(lines, line)
		if line[0] != '#' {
			n++
		}
	}
	return lines, n
}

// A sight is how well a parser reads the first lines of a file.
type sight struct {
	facts
	read   int           // lines
	almost int           // lines skipped only because their client is no address
	shapes map[shape]int // of the lines that were read

	cloudfront bool    // the last line was CloudFront's
	layout     *layout // the last #Fields
}

func look(p parser, lines [][]byte, zone *time.Location) sight {
	w := &worker{parser: p, clock: clock{zone: zone}}
	s := sight{shapes: map[shape]int{}}
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
	if w.layout != nil && w.layout.columns != nil {
		s.layout = w.layout
	}
	return s
}

func (s sight) better(than sight) bool {
	if s.read != than.read {
		return s.read > than.read
	}
	return s.almost > than.almost
}

// finer returns the unit of t if it is smaller than unit, 0 being none.
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
func (s sight) name(names []string) string {
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
