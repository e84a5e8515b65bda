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
		{"file", func(r *reader, n *node, j *Journal) { j.File = r.journalFile(n) }},
		{"max", func(r *reader, n *node, j *Journal) { j.Max = r.bytes(n, "max", minJournalMax, maxJournalMax) }},
		{"keep", func(r *reader, n *node, j *Journal) {
			if j.KeepFiles = int(r.integer(n, "keep", 0, maxJournalKeep)); j.KeepFiles == 0 {
				j.KeepFiles = -1
			}
		}},
		{"query", func(r *reader, n *node, j *Journal) { j.Query = r.boolean(n, "query") }},
	}
}

func readJournal(r *reader, n *node, f *File) {
	example := "{file: refusals.log}"
	if n.kind == scalarNode && strings.ContainsAny(n.text, "/.") {
		example = "{file: " + shorten(n.text) + "}"
	} else if n.kind == scalarNode && (n.text == "json" || n.text == "text") {
		example = "{format: " + n.text + "}"
	}
	readMap(r, n, "journal", example, journalKeys(), &f.Journal)
}

// journalFile reads the name of the journal's file.
func (r *reader) journalFile(n *node) string {
	s := r.line(n, "file")
	switch {
	case s == "":
	case s == "-" || s == "stderr" || s == "stdout" || s == "/dev/stderr" || s == "/dev/stdout":
		r.fault(n, "remove the key to write to stderr", "file: %s is not a file", quote(s))
	case strings.HasSuffix(s, "/") || s == "." || s == "..":
		r.fault(n, "file: "+strings.TrimRight(s, "/")+"/refusals.log", "file: %s is a directory", quote(s))
	case strings.Contains(s, "://") || strings.HasPrefix(s, "syslog"):
		r.fault(n, "remove the key, and let the service read stderr", "file: %s is not a file", quote(s))
	case r.sameFile(s, filepath.Base(r.file.Name)):
		r.fault(n, "", "file: the journal would overwrite the policy")
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

// checkJournal reports a journal that would overwrite another file that the policy
// names.
func (r *reader) checkJournal(got *reading) {
	file := find(got.values["journal"], "file")
	if r.file.Journal.File == "" || file == nil {
		return
	}
	var others []string
	if tls := r.file.TLS; tls != nil {
		others = append(others, tls.Cert, tls.Key)
	}
	for _, m := range r.file.references {
		others = append(others, m.name)
	}
	for _, other := range others {
		if other != "" && r.sameFile(r.file.Journal.File, other) {
			r.fault(file, "", "file: the journal would be written into %s", quote(other))
		}
	}
}

// warnJournal warns of logged query strings, which may contain secrets, and of
// file settings without a file.
func (r *reader) warnJournal() {
	n := find(r.root, "journal")
	if r.file.Journal.Query {
		r.warn(firstNode(find(n, "query")), "",
			"query strings may contain passwords, tokens and names: the journal will contain them")
	}
	if r.file.Journal.File == "" {
		for _, name := range []string{"max", "keep"} {
			if at := find(n, name); at != nil {
				r.warn(at, "journal: {file: refusals.log}", "%s applies to a file, and the journal goes to stderr",
					name)
				return
			}
		}
	}
}
