package policyfile

import (
	"path/filepath"
	"strings"
)

// A Journal sets how refusals are logged.
type Journal struct {
	Format    string // "json" or "text"
	File      string // see File.ResolvePath; "" means stderr
	Max       int64  // bytes after which a new file starts
	KeepFiles int    // the number of full files that are kept; below 0 means none
	Query     bool   // query strings are logged, too
}

// Defaults and bounds of a journal.
const (
	defaultJournalMax  = 256e6
	minJournalMax      = 1e6
	maxJournalMax      = 1e12
	defaultJournalKeep = 4
	maxJournalKeep     = 1000
)

// defaultJournal writes one JSON line for each refusal to stderr.
func defaultJournal() Journal {
	return Journal{Format: "json", Max: defaultJournalMax, KeepFiles: defaultJournalKeep}
}

func journalKeys() []key[Journal] {
	return []key[Journal]{
		{"format", func(r *reader, n *node, j *Journal) {
			j.Format = r.choice(n, "format", []string{"json", "text"}, map[string]string{
				"jsonl": "json", "ndjson": "json", "logfmt": "text", "plain": "text", "combined": "text",
				"common": "text",
			})
		}},
		{"file", func(r *reader, n *node, j *Journal) { j.File = r.logFile(n, "journal", "refusals.log") }},
		{"max", func(r *reader, n *node, j *Journal) { j.Max = r.bytes(n, "max", minJournalMax, maxJournalMax) }},
		{"keep", func(r *reader, n *node, j *Journal) { j.KeepFiles = r.keptFiles(n) }},
		{"query", func(r *reader, n *node, j *Journal) { j.Query = r.boolean(n, "query") }},
	}
}

func readJournal(r *reader, n *node, f *File) {
	readMap(r, n, "journal", logExample(n, "refusals.log"), journalKeys(), &f.Journal)
}

// logExample returns what a log's settings would be if n were a map.
func logExample(n *node, file string) string {
	switch {
	case n.kind == scalarNode && strings.ContainsAny(n.text, "/."):
		file = shorten(n.text)
	case n.kind == scalarNode && (n.text == "json" || n.text == "text" || n.text == "combined"):
		return "{format: " + n.text + "}"
	}
	return "{file: " + file + "}"
}

// keptFiles reads how many full files of a log are kept; below 0 means none.
func (r *reader) keptFiles(n *node) int {
	if kept := int(r.integer(n, "keep", 0, maxJournalKeep)); kept > 0 {
		return kept
	}
	return -1
}

// logFile reads the name of a log's file.
func (r *reader) logFile(n *node, log, example string) string {
	s := r.line(n, "file")
	switch {
	case s == "":
	case s == "-" || s == "stderr" || s == "stdout" || s == "/dev/stderr" || s == "/dev/stdout":
		r.fault(n, "remove the key to write to stderr", "file: %s is not a file", quote(s))
	case strings.HasSuffix(s, "/") || s == "." || s == "..":
		r.fault(n, "file: "+strings.TrimRight(s, "/")+"/"+example, "file: %s is a directory", quote(s))
	case strings.Contains(s, "://") || strings.HasPrefix(s, "syslog"):
		r.fault(n, "remove the key, and let the service read stderr", "file: %s is not a file", quote(s))
	case r.sameFile(s, filepath.Base(r.file.Name)):
		r.fault(n, "", "file: the %s would overwrite the policy", log)
	default:
		return s
	}
	return ""
}

// sameFile reports whether two names mean the same path. Relative names are
// relative to the folder of the policy. Links are not followed.
func (r *reader) sameFile(a, b string) bool {
	absolute := func(name string) string {
		if !filepath.IsAbs(name) {
			name = filepath.Join(r.dir, name)
		}
		if abs, err := filepath.Abs(name); err == nil {
			return abs
		}
		return filepath.Clean(name)
	}
	return absolute(a) == absolute(b)
}

// checkLogs reports logs that would overwrite another file that the policy names.
func (r *reader) checkLogs(got *reading) {
	r.checkLog("journal", find(got.values["journal"], "file"), r.file.Journal.File)
	if l := r.file.AccessLog; l != nil {
		r.checkLog("access log", find(got.values["access_log"], "file"), l.File, r.file.Journal.File)
	}
}

func (r *reader) checkLog(log string, file *node, name string, others ...string) {
	if name == "" || file == nil {
		return
	}
	if tls := r.file.TLS; tls != nil {
		others = append(others, tls.Cert, tls.Key)
	}
	for i := range r.file.Sites {
		others = append(others, r.file.Sites[i].Cert, r.file.Sites[i].Key)
	}
	for _, m := range r.file.references {
		others = append(others, m.name)
	}
	for _, other := range others {
		if other != "" && r.sameFile(name, other) {
			r.fault(file, "", "file: the %s would be written into %s", log, quote(other))
		}
	}
}

// warnLogs warns of logged query strings, which may contain secrets, and of
// file settings without a file.
func (r *reader) warnLogs() {
	j := &r.file.Journal
	r.warnLog("journal", find(r.root, "journal"), j.File, j.Query, "journal: {file: refusals.log}")
	if l := r.file.AccessLog; l != nil {
		r.warnLog("access log", find(r.root, "access_log"), l.File, l.Query, "access_log: {file: access.log}")
	}
}

func (r *reader) warnLog(log string, n *node, file string, query bool, example string) {
	if query {
		r.warn(firstNode(find(n, "query")), "",
			"query strings may contain passwords, tokens and names: the %s will contain them", log)
	}
	if file == "" {
		for _, name := range []string{"max", "keep"} {
			if at := find(n, name); at != nil {
				r.warn(at, example, "%s applies to a file, and the %s goes to stderr", name, log)
				return
			}
		}
	}
}
