// Package policyfile reads policy files.
//
// Start with [Load]. Every fault of a file is told at once, with its line, a
// caret and a hint: see [Faults].
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

	Listen  string        // "" when not given
	TLS     *TLS          // nil means plain HTTP
	H2C     bool          // HTTP/2 without TLS, by prior knowledge
	Contact string        // whom to ask; "" when not given
	Grace   time.Duration // how long requests in progress may end; 0 means DefaultGrace
	Bounds  Bounds
	Journal Journal

	Upstream     string        // a URL; "" when not given
	Cancels      bool          // a request ends with its client: the upstream stops by itself, or Abandon is 0
	Timeout      time.Duration // how long it may take to begin its answer; 0 means the default of serve
	Abandon      time.Duration // how long the answer to a client that is gone is read on; 0 means not at all
	UpstreamCPU  UpstreamCPU
	UpstreamCost UpstreamCost
	Share        *Share // nil: nobody waits

	Hosts           []string // names in lower case, "*." before some, IPv6 in brackets; nil means any host
	KeepUnderscores bool     // headers with "_" in their names are handed on

	ProxyProtocol   bool     // trusted peers send the PROXY protocol
	TrustedProxies  []string // prefixes, addresses, names of lists and other names
	Header          string   // that trusted proxies tell the client in; "" means X-Forwarded-For
	EnforceSuspects bool     // rules hold for suspected proxies too
	Memory          int64    // for the counters, in bytes

	Lists    map[string]*AddrSet
	Sources  []Source // where the lists come from that are not in the file; their sets are empty at first
	Bots     Bots
	DNS      DNS
	Sessions *Sessions // nil means that no sessions are kept
	Registry Registry
	Warnings []Warning

	named    []mention                   // the files that the policy names and Parse does not read
	percents map[*fairshare.Limit]string // limits that are a share of a window, as written
	cores    float64                     // that shares of CPU are of
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

// Beside returns where a file is that the policy names: beside it, unless the
// name is absolute.
func (f *File) Beside(name string) string {
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
	r := &reader{options: o, file: &File{Name: name, Memory: DefaultMemory, Abandon: DefaultAbandon, Journal: defaultJournal()}, dir: filepath.Dir(name)}
	r.read(data)
	if len(r.faults) > 0 {
		return nil, r.joined()
	}
	if err := r.file.Policy.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.warnings()
	r.file.Cancels = r.file.Cancels || r.file.Abandon == 0
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
		r.faultAt(0, 0, "", "larger than %s", FormatSize(maxSize))
		return
	}
	if line, ok := readable(data); !ok {
		r.faultAt(line, 1, "save it as UTF-8 (UTF-16 is what some editors call Unicode)", "the file is no UTF-8 text")
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
		r.faultAt(1, 1, "rules: [{use: default}] takes the built-in rules", "the file holds no policy")
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
