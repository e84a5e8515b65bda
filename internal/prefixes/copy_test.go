package prefixes

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A start without a network uses the copies of the last run.
func TestCopiesOutliveTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "state", "lists")
		source := Source{Name: "drop", URL: "https://me:secret@lists.example/drop?key=secret", Every: time.Hour}
		server := &serving{steps: []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"v1"`)
				io.WriteString(w, "192.0.2.1\n")
			},
		}}
		var n notebook
		if _, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder,
			Transport: server})); err != nil {
			t.Fatal(err)
		}
		n.expect(t, "fetched", "192.0.2.1/32")
		file := filepath.Join(folder, "drop.copy")
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info.Mode(), err)
		}
		data, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(data), "secret") || strings.Contains(string(data), "lists.example") {
			t.Errorf("the copy holds the URL: %s, %v", data, err)
		}
		setTime := func(at time.Time) {
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
		setTime(time.Now())
		time.Sleep(30 * time.Minute)

		// Another run, while no URL answers.
		dead := &serving{steps: []func(http.ResponseWriter, *http.Request){status(500), status(304)}}
		var again notebook
		k, err := Open(t.Context(), again.options(Options{Sources: []Source{source}, Folder: folder, Transport: dead}))
		if err != nil {
			t.Fatal(err)
		}
		again.expect(t, "from the copy", "192.0.2.1/32")
		running(t, k)
		time.Sleep(29 * time.Minute)
		if len(dead.requests()) > 0 {
			t.Errorf("asked before its time")
		}
		time.Sleep(10 * time.Minute)
		again.expect(t, "nobody answers, then somebody", "192.0.2.1/32",
			"list drop: https://lists.example: status 500; the 1 prefix of 2000-01-01 00:00 UTC stay in use",
			"list drop: https://lists.example answers again: 1 prefix")
		if len(dead.requests()) != 2 || dead.requests()[0].Header.Get("If-None-Match") != `"v1"` ||
			dead.requests()[1].Header.Get("If-None-Match") != `"v1"` {
			t.Errorf("asked %d times, with %v", len(dead.requests()), dead.requests()[0].Header)
		}
		if info, err := os.Stat(file); err != nil || time.Since(info.ModTime()) > 9*time.Minute ||
			time.Since(info.ModTime()) < 0 {
			t.Errorf("asked at %v, %v", info.ModTime(), err)
		}
	})
}

func TestInvalidCopiesAreIgnored(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(copy string) string
		url   string // of the policy now
		said  string
	}{
		{"another body", func(s string) string { return strings.Replace(s, "192.0.2.1", "192.0.2.9", 1) }, "",
			"it is damaged"},
		{"cut", func(s string) string { return s[:len(s)-3] }, "", "it is damaged"},
		{"more behind", func(s string) string { return s + "192.0.2.9\n" }, "", "it is damaged"},
		{"no line at all", func(s string) string { return "" }, "", "it is damaged"},
		{"another format", func(s string) string {
			return strings.Replace(s, `"fairshare_copy":1`,
				`"fairshare_copy":2`, 1)
		}, "", "it is damaged"},
		{"of another URL", func(s string) string { return s }, "https://other.example/", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			source := Source{Name: "drop", URL: "https://lists.example/"}
			var n notebook
			good := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n")}}
			if _, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder,
				Transport: good})); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(folder, "drop.copy")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.spoil(string(data))), 0o600); err != nil {
				t.Fatal(err)
			}
			host := "https://lists.example"
			if c.url != "" {
				source.URL, host = c.url, "https://other.example"
			}
			dead := &serving{steps: []func(http.ResponseWriter, *http.Request){status(500)}}
			if _, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder,
				Transport: dead})); err != nil {
				t.Fatal(err)
			}
			want := []string{"list drop: " + host + ": status 500; it is empty until it answers"}
			if c.said != "" {
				want = append([]string{"list drop: its copy " + file + " is not used: " + c.said}, want...)
			}
			n.expect(t, "with that copy", "", want...)

			// The next valid answer replaces it.
			if _, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder,
				Transport: good})); err != nil {
				t.Fatal(err)
			}
			n.lines = nil
			if _, err := Open(t.Context(), n.options(Options{Sources: []Source{source}, Folder: folder,
				Transport: dead})); err != nil {
				t.Fatal(err)
			}
			n.expect(t, "mended", "192.0.2.1/32")
		})
	}
}

func TestCopyFilesHaveDistinctNames(t *testing.T) {
	k := &Keeper{folder: "f"}
	seen := map[string]string{}
	for _, name := range []string{"drop", "Drop", "dröp", "../drop", "a/b", "a_b", ".", "..", "",
		strings.Repeat("a", 100), strings.Repeat("a", 101)} {
		file := k.copyFile(&source{Source: Source{Name: name}})
		if other, found := seen[file]; found || filepath.Dir(file) != "f" || len(file) > 100 {
			t.Errorf("%q and %q: %s", name, other, file)
		}
		seen[file] = name
	}
}

func TestLeftoversAreRemoved(t *testing.T) {
	folder := t.TempDir()
	old, fresh := filepath.Join(folder, tempPrefix+"1"), filepath.Join(folder, tempPrefix+"2")
	for file, age := range map[string]time.Duration{old: 2 * time.Hour, fresh: 0} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(t.Context(), Options{Folder: folder}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Error("what is left of an old run stays")
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Error("another process's new copy is gone")
	}
}

// A folder that cannot be written is logged once for all lists, and the lists are used.
func TestFolderThatCannotBeCreated(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	write(t, inTheWay, "", 0)
	var n notebook
	server := &serving{steps: []func(http.ResponseWriter, *http.Request){text("192.0.2.1\n")}}
	sources := []Source{{Name: "drop", URL: "https://lists.example/"}, {Name: "drop2", URL: "https://lists.example/2"}}
	k, err := Open(t.Context(), n.options(Options{Sources: sources, Folder: filepath.Join(inTheWay, "lists"),
		Transport: server}))
	if err != nil {
		t.Fatal(err)
	}
	n.expect(t, "at start", "192.0.2.1/32", "the lists from URLs are in use, but copies cannot be stored: mkdir "+
		inTheWay+": not a directory; after a restart without these URLs they would be missing")
	for _, s := range k.Status() {
		if s.Prefixes != 1 || !strings.Contains(s.Problem, "not a directory") {
			t.Errorf("%+v", s)
		}
	}
}

func TestCopyKeepsTheExactBytes(t *testing.T) {
	body := []byte("\xef\xbb\xbf192.0.2.1\r\n\x00\n")
	k := &Keeper{folder: t.TempDir(), options: Options{MaxSize: 1 << 20}}
	s := &source{Source: Source{Name: "a/b", URL: "https://a.example"}}
	if err := k.writeCopy(s, body, time.Now()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(k.copyFile(s))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := splitCopy(data); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzCopy(f *testing.F) {
	f.Add([]byte("{\"fairshare_copy\":1,\"bytes\":0,\"sha256\":\"\"}\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		header, body, err := splitCopy(data)
		if err == nil && (header.SHA256 != digest(body) || header.Bytes != len(body)) {
			t.Errorf("%q is taken", data)
		}
	})
}
