package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLogsFromOutside reads every log below the folder FAIRSHARE_LOGS: each
// line is read or skipped with a reason, none is lost.
func TestLogsFromOutside(t *testing.T) {
	root := os.Getenv("FAIRSHARE_LOGS")
	if root == "" {
		t.Skip("to read real logs: FAIRSHARE_LOGS=/folder/with/logs go test -v ./internal/accesslog")
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isLogName(d.Name()) {
			return err
		}
		t.Run(strings.TrimPrefix(path, root), func(t *testing.T) { readOutside(t, path) })
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isLogName(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	return strings.Contains(name, "log") || strings.HasSuffix(name, ".tsv") || strings.Contains(name, "access")
}

func readOutside(t *testing.T, path string) {
	f, err := Open(path, Options{})
	var unknown *FormatError
	if errors.As(err, &unknown) {
		if unknown.Hint == "" {
			t.Errorf("no hint with: %v", err)
		}
		t.Logf("no format: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, read := 0, 0
	reasons, samples := map[string]int{}, map[string]string{}
	clients, agents := map[string]bool{}, map[string]bool{}
	var first, last Entry
	for {
		batch, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines += batch.Lines()
		read += len(batch.Entries)
		for i := range batch.Entries {
			e := &batch.Entries[i]
			checkEntry(t, e)
			clients[e.Client.String()] = true
			agents[strings.Clone(e.UserAgent)] = true
			if first.Line == 0 || e.Time.Before(first.Time) {
				first = Entry{Line: e.Line, Time: e.Time}
			}
			if e.Time.After(last.Time) {
				last = Entry{Line: e.Line, Time: e.Time}
			}
		}
		for _, s := range batch.Skipped {
			reasons[s.Reason]++
			samples[s.Reason] = strings.Clone(s.Sample)
		}
		batch.Release()
	}
	want := countLines(t, path)
	if f.Format() == "tsv" {
		want-- // its header
	}
	if lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
	t.Logf("%s: %d lines, %d skipped, %d clients, %d user agents, %s to %s, has %09b, unit %v, zone known %v, note %v",
		f.Format(), lines, lines-read, len(clients), len(agents), first.Time.Format("2006-01-02T15:04:05Z"),
		last.Time.Format("2006-01-02T15:04:05Z"),
		f.Has(), f.Resolution(), f.Zoned(), f.Note())
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%6d %s: %q", reasons[reason], reason, samples[reason])
	}
}

// countLines counts the lines that are neither blank nor comments, in the simplest way.
func countLines(t *testing.T, path string) int {
	src, err := openSource(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	n := 0
	in := bufio.NewScanner(src)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		line := bytes.TrimSpace(bytes.TrimPrefix(in.Bytes(), []byte("\xEF\xBB\xBF")))
		if len(line) > 0 && line[0] != '#' {
			n++
		}
	}
	return n
}

// checkEntry checks conditions that every entry must fulfill.
func checkEntry(t *testing.T, e *Entry) {
	t.Helper()
	switch {
	case !e.Client.IsValid() || e.Client.Zone() != "" || e.Client.Is4In6():
		t.Errorf("line %d: client %v", e.Line, e.Client)
	case e.Time.Year() < minYear || e.Time.Year() > maxYear || e.Time.Location() != e.Time.UTC().Location():
		t.Errorf("line %d: time %v", e.Line, e.Time)
	case e.Has&HasMethod != 0 && e.Has&HasPath != 0 && (e.Method == "") != (e.Target == ""):
		t.Errorf("line %d: method %q, target %q", e.Line, e.Method, e.Target)
	case e.Has&HasMethod == 0 && e.Method != "" || e.Has&HasPath == 0 && e.Target != "":
		t.Errorf("line %d: method %q, target %q, has %b", e.Line, e.Method, e.Target, e.Has)
	case e.Method != "" && !isToken(e.Method):
		t.Errorf("line %d: method %q, target %q", e.Line, e.Method, e.Target)
	case e.Status < 0 || e.Status > 999 || e.Bytes < 0 || e.Duration < 0 || e.Upstream < 0 || e.CPU < 0:
		t.Errorf("line %d: status %d, bytes %d, duration %v, upstream %v, CPU %v", e.Line, e.Status, e.Bytes,
			e.Duration, e.Upstream, e.CPU)
	}
}
