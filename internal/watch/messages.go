package watch

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
	"fairshare/policyfile"
)

// prefix begins each line of the log.
const prefix = "fairshare: "

const (
	measureAfter = 200         // lines that show what the logs lack
	reportLag    = time.Minute // lines that are so late are reported
	mostLacks    = 8           // facts in a line about what the logs lack
	mostBytes    = 80          // of a line that could not be read
)

// printf writes a line to the log without waiting for its reader.
func (w *watcher) printf(format string, args ...any) {
	fmt.Fprintf(w.journal, prefix+format+"\n", args...)
}

func (w *watcher) printLines(lines []string) {
	for _, line := range lines {
		w.printf("%s", line)
	}
}

// introduce writes the messages at the start.
func (w *watcher) introduce() {
	print := func(format string, args ...any) { fmt.Fprintf(w.options.Stderr, prefix+format+"\n", args...) }
	rt := w.policy.Current()
	print("watches %s; it refuses nothing itself", prose.Plural(int64(len(w.options.Logs)), "log"))
	if w.pipe != nil {
		print("log: standard input")
	}
	for _, l := range w.logs {
		print("log: %s%s", l.path, l.found)
	}
	print("policy: %s, %s of memory for counters", w.describePolicy(),
		policyfile.FormatSize(rt.Limiter.Stats(w.policy.Now()).Memory))
	print("state: %s", w.policy.DescribeState())
	if export := w.policy.DescribeExport(); export != "" {
		print("export: %s", export)
	}
	target := "here"
	if rt.File.Journal.File != "" {
		target = "in " + rt.File.ResolvePath(rt.File.Journal.File)
	}
	print("journal: refusals that would have been, as lines of %s, %s; to load the policy again: kill -HUP %d",
		rt.File.Journal.Format, target, os.Getpid())
}

// describePolicy returns the name of the policy, and whether its bans are only noted.
func (w *watcher) describePolicy() string {
	file := w.policy.Current().File
	text := file.Name + ", " + prose.Plural(int64(len(file.Policy.Rules)), "rule")
	if file.Policy.DryRun {
		text += ", dry run: bans have no effect"
	}
	return text
}

// status returns the line that systemctl status shows.
func (w *watcher) status() string {
	return fmt.Sprintf("watches %s by %s", prose.Plural(int64(len(w.options.Logs)), "log"), w.describePolicy())
}

// lackReport returns one line about the facts that rules test and the logs lack. It is made
// once.
func (w *watcher) lackReport() []string {
	var has accesslog.Fields
	var resolution time.Duration
	add := func(s *accesslog.Stream) {
		has |= s.Has()
		if r := s.Resolution(); r > 0 && (resolution == 0 || r < resolution) {
			resolution = r
		}
	}
	for _, l := range w.logs {
		for _, t := range l.files {
			add(t.stream)
		}
	}
	if w.pipe != nil {
		add(w.pipe.stream)
	}
	w.measure = true
	rt := w.policy.Current()
	opts := liveOptions(w.policy, rt, &w.judge.guard)
	rules := map[string]int{}
	for _, lack := range replay.Lacks(&opts, has, resolution) {
		rules[lack.Fact]++
	}
	if len(rules) == 0 {
		return nil
	}
	var facts []string
	for fact := range rules {
		facts = append(facts, fact)
	}
	slices.SortFunc(facts, func(a, b string) int { return cmp.Or(rules[b]-rules[a], strings.Compare(a, b)) })
	var texts []string
	for i, fact := range facts {
		if i == mostLacks {
			texts = append(texts, fmt.Sprintf("and %d more", len(facts)-i))
			break
		}
		texts = append(texts, fmt.Sprintf("%s (%s)", fact, prose.Plural(int64(rules[fact]), "rule")))
	}
	return []string{"not measured, because the logs do not hold it: " + strings.Join(texts, ", ") +
		"; fairshare replay says why"}
}

// minuteReport returns lines about the last minute: lines that could not be read, and lines
// that came late.
func (w *watcher) minuteReport() (lines []string) {
	skipped := func(name string, s *skips) {
		if s.n > 0 {
			line := fmt.Sprintf("warning: %s of %s of %s could not be read; the last one: %s", prose.Number(s.n),
				prose.Plural(s.lines, "line"), name, s.reason)
			if s.sample != "" {
				line += ": " + prose.Cut(prose.Printable(s.sample), mostBytes)
			}
			lines = append(lines, line)
		}
		*s = skips{}
	}
	for _, l := range w.logs {
		var sum skips
		for _, t := range l.files {
			n, all := sum.n+t.skipped.n, sum.lines+t.skipped.lines
			if t.skipped.n > 0 {
				sum = t.skipped
			}
			sum.n, sum.lines = n, all
			t.skipped = skips{}
		}
		skipped(l.path, &sum)
	}
	if w.pipe != nil {
		skipped("standard input", &w.pipe.skipped)
	}
	if !w.measure && w.judged > 0 {
		lines = append(lines, w.lackReport()...)
	}
	late := &w.late
	if late.worst >= reportLag {
		lines = append(lines, fmt.Sprintf("lines were judged up to %s after their time: the server writes its log late "+
			"(nginx: buffer, flush), its times have another zone (--timezone), or there was much to read",
			prose.Duration(late.worst)))
	}
	if late.future >= time.Second {
		lines = append(lines, fmt.Sprintf("warning: times in the logs are up to %s ahead of the clock: they count as the "+
			"present; --timezone names the zone of times without one", prose.Duration(late.future)))
	}
	if late.late > 0 {
		lines = append(lines, fmt.Sprintf("warning: %s not judged: earlier than others by more than %s",
			prose.Counted(late.late, "line was", "lines were"), prose.Duration(tooLate)))
	}
	*late = lateness{}
	return lines
}
