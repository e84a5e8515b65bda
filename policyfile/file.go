// Package policyfile reads policy files.
//
// Start with [Load]. If a file has errors, the error of Load joins all of them;
// [Faults] takes it apart. Each has its line, a caret below the column and,
// where possible, a fix.
//
// A [File] has two parts. The rules and all that a program needs to judge
// requests by them stand in File itself: the policy, lists, bots, DNS, trusted
// proxies, the memory of counters and the share of a busy upstream. What only
// the command serve uses (listening, TLS, the upstream's URL, journal, sessions,
// registry) is in its part [Serve]; a library can ignore it.
//
// Some rules look at facts that are not in the file: lists from files and URLs,
// bots, hostnames, DNS lists, labels. Package site provides them. A program
// that provides them itself says so by [File.Provide]; otherwise
// [fairshare.NewGuard] refuses such a policy.
package policyfile

import (
	_ "embed"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"fairshare"
)

// Defaults and bounds of a file's settings.
const (
	DefaultGrace   = 10 * time.Second
	DefaultMemory  = 64 << 20
	DefaultAbandon = 60 * time.Second
	minMemory      = 1 << 20
	maxMemory      = 1 << 40
)

// A File is one policy file.
type File struct {
	Name   string
	Policy fairshare.Policy

	Contact  string // shown to refused clients; "" when not given
	FailOpen bool   // requests pass while the counters fail
	Memory   int64  // for the counters, in bytes; DefaultMemory when not given
	Share    *Share // of a busy upstream; nil means that no request waits

	TrustedProxies []string // prefixes, addresses, names of lists and fixed names such as "loopback"
	Header         string   // in which trusted proxies name the client; "" means X-Forwarded-For
	IgnoreUnnamed  bool     // headers of peers that are not in TrustedProxies are ignored: "trusted_proxies: []"

	Lists   map[string]*AddrSet
	Sources []Source // lists that come from files and URLs; their sets are empty at first
	Bots    Bots
	DNS     DNS
	ASN     ASN

	Serve // what only the command serve uses

	Warnings []Warning

	provided Facts
	named    []mention                   // the files that the policy names and Parse does not read
	percents map[*fairshare.Limit]string // limits that are a share of a window, as written
	cores    float64                     // that shares of CPU are of
}

// Serve holds the settings of the command serve. They do not change what the
// rules decide.
type Serve struct {
	Listen   string   // an address or a socket; "" when not given
	TLS      *TLS     // nil means plain HTTP
	H2C      bool     // HTTP/2 without TLS, by prior knowledge
	Hosts    []string // names in lower case, "*." before some, IPv6 in brackets; nil means any host
	Bounds   Bounds
	Grace    time.Duration // how long requests in progress may take at the end; 0 means DefaultGrace
	Journal  Journal
	Registry Registry
	Sessions *Sessions // of bots without cookies; nil means that none are kept

	ProxyProtocol   bool     // trusted peers send the PROXY protocol
	KeepUnderscores bool     // headers with "_" in their names reach the upstream
	KeepHeaders     []string // headers that override method or path and reach the upstream all the same

	Upstream     string        // a URL; "" when not given
	Timeout      time.Duration // until the upstream begins its answer; 0 means the default of serve
	Cancels      bool          // the upstream's request ends with its client; true also if Abandon is 0
	Abandon      time.Duration // how long the answer is read after its client has gone; 0 means not at all
	UpstreamCPU  UpstreamCPU
	UpstreamCost UpstreamCost
}

// TLS names the files of a certificate and its key, as the policy does: serve
// looks for them beside it.
type TLS struct{ Cert, Key string }

// ProxyLists returns the prefixes that the lists which TrustedProxies names
// hold now. A list goes before what else its name stands for. A list from a
// file may be among them, never one from a URL.
func (f *File) ProxyLists() map[string][]netip.Prefix {
	lists := map[string][]netip.Prefix{}
	for _, name := range f.TrustedProxies {
		if list := f.Lists[name]; list != nil {
			lists[name] = list.Prefixes()
		}
	}
	return lists
}

// ResolvePath returns the path of a file that the policy names. A relative name
// is relative to the folder of the policy file; "" stays "".
func (f *File) ResolvePath(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(f.Name), name)
}

// A mention is a place that names a file.
type mention struct {
	name         string
	line, column int
	source       string
}

// Fault returns what is wrong with a file that the policy names (of Bots,
// Sources and DNS, spelled as there) as a fault of the policy where it stands.
func (f *File) Fault(name string, err error, hint string) *ParseError {
	fault := &ParseError{File: f.Name, Hint: hint, Err: err}
	for _, m := range f.named {
		if m.name == name {
			fault.Line, fault.Column, fault.Source = m.line, m.column, m.source
			break
		}
	}
	return fault
}

// Options say how a policy file is read. The zero Options are fine.
type Options struct {
	// Bots returns the bots of a table, a file, or of the built-in one when
	// table is "". nil means that names of bots are not checked.
	Bots func(table string) ([]BotName, error)

	// CostHeader tells what is wrong with a header for costs. nil means that
	// only what has a meaning of its own anywhere is refused.
	CostHeader func(name string) error

	// KeepHeader tells why a header cannot be one of keep_headers. nil means
	// that any name can.
	KeepHeader func(name string) error

	// Cores is how many CPU cores the upstream has if the policy does not say;
	// 0 means as many as this machine.
	Cores int
}

// Load is [Options.Load] without options: names of bots are not checked.
func Load(path string) (*File, error) { return Options{}.Load(path) }

// Parse is [Options.Parse] without options: names of bots are not checked.
func Parse(name string, data []byte) (*File, error) { return Options{}.Parse(name, data) }

// Load reads a policy file. Files that it names are looked for beside it.
func (o Options) Load(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	return o.Parse(path, data)
}

// Parse reads a policy that is the content of the file called name. The
// error joins all faults; [Faults] takes it apart.
func (o Options) Parse(name string, data []byte) (*File, error) {
	r := &reader{options: o, file: &File{Name: name, Memory: DefaultMemory,
		Serve: Serve{Abandon: DefaultAbandon, Journal: defaultJournal()}}, dir: filepath.Dir(name)}
	r.read(data)
	if len(r.faults) > 0 {
		return nil, r.joined()
	}
	if err := r.file.Policy.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.warnings()
	r.file.Cancels = r.file.Cancels || r.file.Abandon == 0
	r.file.Policy.Ready = r.file.ready
	return r.file, nil
}

//go:embed default.yaml
var builtIn []byte

// BuiltInSource returns the built-in policy as its file stands.
func BuiltInSource() []byte { return builtIn }

// BuiltIn returns the built-in policy.
func BuiltIn() *File {
	f, err := Parse("built-in policy", builtIn)
	if err != nil {
		panic(err) // it is part of the program, and tested
	}
	return f
}

const byteOrderMark = "\uFEFF"

func (r *reader) read(data []byte) {
	if len(data) > maxSize {
		r.faultAt(0, 0,
			"put long lists into files: lists: {NAME: {file: list.txt}}; each may have 2,000,000 prefixes",
			"larger than %s", FormatSize(maxSize))
		return
	}
	if line, ok := readable(data); !ok {
		r.faultAt(line, 1, "save it as UTF-8 (some editors call UTF-16 Unicode)", "the file is not UTF-8 text")
		return
	}
	text := strings.TrimPrefix(string(data), byteOrderMark)
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text) // YAML 1.2 §5.4
	r.lines = strings.Split(text, "\n")
	root := r.tree(text)
	if root == nil {
		if r.broken {
			return
		}
		r.faultAt(1, 1, "rules: [{use: default}] takes the built-in rules", "the file contains no policy")
		return
	}
	r.policy(root)
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of policy files, for
// editors.
func Schema() []byte { return schema }

// readable reports whether data is UTF-8 text, else the line that is not.
func readable(data []byte) (line int, ok bool) {
	line = 1
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		switch {
		case c == utf8.RuneError && size == 1, c == 0:
			return line, false
		case c == '\n':
			line++
		}
		i += size
	}
	return line, true
}
