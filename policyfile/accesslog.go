package policyfile

import "fmt"

// An AccessLog sets how all requests are logged.
type AccessLog struct {
	Format    string // "combined" or "json"
	File      string // see File.ResolvePath; "" means stderr
	Max       int64  // as in Journal
	KeepFiles int    // as in Journal
	Query     bool   // query strings are logged, too
}

func accessLogKeys() []key[AccessLog] {
	return []key[AccessLog]{
		{"file", func(r *reader, n *node, l *AccessLog) {
			if n.kind != scalarNode || n.text != "stderr" {
				l.File = r.logFile(n, "access log", "access.log")
			}
		}},
		{"format", func(r *reader, n *node, l *AccessLog) {
			l.Format = r.choice(n, "format", []string{"combined", "json"}, map[string]string{
				"jsonl": "json", "ndjson": "json", "text": "combined", "plain": "combined", "common": "combined",
				"clf": "combined", "nginx": "combined", "apache": "combined",
			})
		}},
		{"max", func(r *reader, n *node, l *AccessLog) { l.Max = r.bytes(n, "max", minJournalMax, maxJournalMax) }},
		{"keep", func(r *reader, n *node, l *AccessLog) { l.KeepFiles = r.keptFiles(n) }},
		{"query", func(r *reader, n *node, l *AccessLog) { l.Query = r.boolean(n, "query") }},
	}
}

func readAccessLog(r *reader, n *node, f *File) {
	journal := defaultJournal()
	l := &AccessLog{Format: "combined", Max: journal.Max, KeepFiles: journal.KeepFiles}
	if n.kind == scalarNode && n.text == "stderr" {
		f.AccessLog = l
		return
	}
	if readMap(r, n, "access_log", logExample(n, "access.log"), accessLogKeys(), l) != nil {
		f.AccessLog = l
	}
}

// description describes the log in a sentence.
func (l *AccessLog) description() string {
	where := "to stderr"
	if l.File != "" {
		where = fmt.Sprintf("to %s (%s at most", printable(l.File), FormatSize(l.Max))
		if l.KeepFiles > 0 {
			where += fmt.Sprintf(", and %d older files", l.KeepFiles)
		}
		where += ")"
	}
	text := fmt.Sprintf("each request is logged %s, in %s format, with its verdict", where, l.Format)
	if l.Query {
		return text + ", and with query strings."
	}
	return text + "; query strings are left out."
}
