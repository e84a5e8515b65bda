// Package policyfile reads policy files.
//
// Start with [Load]. If a file has errors, the error of Load joins all of them;
// [Faults] takes it apart. Each has its line, a caret below the column and,
// where possible, a fix.
//
// A [File] has two parts. File itself has everything that a program needs to judge
// requests: the policy, lists, bots, DNS, trusted proxies, the memory of counters
// and the share of a busy upstream. Its part [Serve] has the settings that only
// the command serve uses: listening, TLS, the upstream's URL, journal, sessions,
// registry. A library can ignore that part.
//
// Some rules test facts that are not in the file: lists from files and URLs, bots,
// hostnames, DNS lists, labels. Package site provides them. A program that
// provides them itself declares this by [File.Provide]; otherwise
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

	Contact  string // shown to refused clients; "" if not set
	FailOpen bool   // requests pass while the counters are out of order
	Memory   int64  // for the counters, in bytes; DefaultMemory if not set
	Share    *Share // how a busy upstream is shared; nil if the file does not say: see ServedShare
	NoShare  bool   // the file says "share: none": no request waits for a turn
	NoRobots bool   // the file says "robots: off": robots.txt is not read

	Visitors *Visitors // the cookies of visitors; nil means that the policy says nothing of them

	WaitingRoom *WaitingRoom // for people at a busy upstream; nil means the default: see HasWaitingRoom

	TrustedProxies []string // prefixes, addresses, names of lists and fixed names such as "loopback"
	Header         string   // with the client's address, from trusted proxies; "" means X-Forwarded-For
	IgnoreUnnamed  bool     // headers of peers that are not in TrustedProxies are ignored: "trusted_proxies: []"

	Lists   map[string]*AddrSet
	Sources []Source // lists from files and URLs; Parse leaves their sets empty
	Bots    Bots
	DNS     DNS
	ASN     ASN

	Answers   Answers    // to clients that no rule of the policy refuses
	BanExport *BanExport // where bans are handed to; nil means nowhere

	Sites []Site // as Policy.Sites, and where their requests go; empty means one site

	Tests []Test // of the rules; only fairshare check runs them

	Serve // settings that only the command serve uses

	Warnings []Warning

	provided    Facts
	references  []fileReference             // the files that the policy names and Parse does not read
	percents    map[*fairshare.Limit]string // limits that are a share of a window, as written
	cores       float64                     // of the upstream; shares of CPU are shares of them
	robotsRules []string                    // rules that look at robots.txt and are not built in
	busyRules   []string                    // rules with when: busy that are not built in
	answerRules []answerFault               // what depends on the site's answers and is not built in

	sum        uint64   // of its text and that of files in it
	parts      []part   // for Changes
	rulesParts [][]part // of each rule of Policy.Rules
}

// Serve holds the settings of the command serve. They do not change what the
// rules decide.
type Serve struct {
	Listen string // an address or a socket; "" if not set
	// ListenHTTP is the address of a listener without TLS that redirects to https; "" means none.
	ListenHTTP string
	TLS        *TLS // nil means plain HTTP
	H2C        bool // HTTP/2 without TLS, by prior knowledge

	NoFastLane bool     // net/http serves all requests
	Hosts      []string // in lower case, some begin with "*.", IPv6 in brackets; nil means any host
	Bounds     Bounds
	Grace      time.Duration // for requests in progress when serve stops; 0 means DefaultGrace
	Journal    Journal
	AccessLog  *AccessLog // nil means none

	// OpenTelemetry nil means that no request becomes a span.
	OpenTelemetry *OpenTelemetry

	Registry Registry
	Store    *Store    // nil means that each program counts for itself
	Sessions *Sessions // of bots without cookies; nil means that serve adds no sessions

	ProxyProtocol   bool     // trusted peers send the PROXY protocol
	KeepUnderscores bool     // headers with "_" in their names reach the upstream
	KeepHeaders     []string // headers that override the method or path and still reach the upstream

	Upstream     string        // a URL; "" if not set
	Timeout      time.Duration // until the upstream starts its answer; 0 means the default of serve
	Cancels      bool          // a request at the upstream ends when its client disconnects; true also if Abandon is 0
	Abandon      time.Duration // how long an answer is read after its client has disconnected; 0 means not at all
	UpstreamCPU  UpstreamCPU
	UpstreamCost UpstreamCost
}

// TLS names the files of a certificate and its key, and where others come from:
// see [File.ResolvePath]. At least one of both is there, or a site has a certificate of its own.
type TLS struct {
	Cert, Key string
	ACME      *ACME // nil: none
}

// ProxyLists returns the current prefixes of the lists that TrustedProxies names.
// A list replaces a fixed name such as "cloudflare". Lists from files can be among
// them, lists from URLs never are.
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

// A fileReference is a value of the policy that names a file.
type fileReference struct {
	name         string
	line, column int
	source       string
}

// Fault returns an error of a file that the policy names as a fault of the policy,
// at the position of the name. name is spelled as in Bots, Sources and DNS.
func (f *File) Fault(name string, err error, hint string) *ParseError {
	fault := &ParseError{File: f.Name, Hint: hint, Err: err}
	for _, m := range f.references {
		if m.name == name {
			fault.Line, fault.Column, fault.Source = m.line, m.column, m.source
			break
		}
	}
	return fault
}

// Options sets how a policy file is checked. The zero Options are useful.
type Options struct {
	// Bots returns the bots of a table. table is the path of its file; "" means
	// the built-in table. nil means that names of bots are not checked.
	Bots func(table string) ([]BotName, error)

	// CostHeader returns why a header cannot carry costs. nil means that only
	// headers with a standard meaning are refused.
	CostHeader func(name string) error

	// KeepHeader returns why a header cannot be in keep_headers. nil means that
	// every header can.
	KeepHeader func(name string) error

	// Cores is the number of the upstream's CPU cores if the policy does not set
	// it; 0 means the number of this machine.
	Cores int
}

// Load is [Options.Load] without options: names of bots are not checked.
func Load(path string) (*File, error) { return Options{}.Load(path) }

// Parse is [Options.Parse] without options: names of bots are not checked.
func Parse(name string, data []byte) (*File, error) { return Options{}.Parse(name, data) }

// Load reads a policy file. Relative names in it are relative to its folder.
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

// Parse reads data, the content of the policy file name. The error joins all
// faults; [Faults] returns them.
func (o Options) Parse(name string, data []byte) (*File, error) { return o.parse(name, data, true) }

// parse is Parse, and looks for warnings only if warn is set.
func (o Options) parse(name string, data []byte, warn bool) (*File, error) {
	r := &reader{options: o, file: &File{Name: name, Memory: DefaultMemory,
		Serve: Serve{Abandon: DefaultAbandon, Journal: defaultJournal()}}, dir: filepath.Dir(name)}
	r.read(data)
	if len(r.faults) > 0 {
		return nil, r.joined()
	}
	if err := r.file.Policy.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if warn {
		r.warnings()
	}
	r.noteParts()
	r.file.Cancels = r.file.Cancels || r.file.Abandon == 0
	r.file.Policy.Ready = r.file.ready
	return r.file, nil
}

//go:embed default.yaml
var builtIn []byte

// BuiltInSource returns the text of the built-in policy.
func BuiltInSource() []byte { return builtIn }

// BuiltIn returns the built-in policy.
func BuiltIn() *File {
	f, err := Options{}.parse("built-in policy", builtIn, false) // it has no warnings
	if err != nil {
		panic(err) // cannot happen: the file is part of the program, and tested
	}
	f.busyRules, f.robotsRules, f.answerRules = nil, nil, nil
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
	text := textOf(data)
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

// textOf returns the text of a file with line ends as YAML 1.2 §5.4 says.
func textOf(data []byte) string {
	text := strings.TrimPrefix(string(data), byteOrderMark)
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of policy files, for
// editors.
func Schema() []byte { return schema }

// readable reports whether data is UTF-8 text. If not, line is the first line that
// is not.
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
