package policyfile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/prose"
)

// A BanExport says where bans are handed to, so that banned clients are kept out before
// they reach a server. At least one of the pointers is set.
type BanExport struct {
	Max int // bans that are exported at once; 0 means DefaultMaxExported

	NFTables *NFTables
	Nginx    *NginxBans
	HAProxy  *HAProxyBans
	Command  *BanCommand
}

// DefaultMaxExported is how many bans are exported at once unless the policy says otherwise.
const DefaultMaxExported = 65536

const mostExported = 1 << 20

// NFTables is the table "inet fairshare" of the kernel's firewall.
type NFTables struct {
	Reject   bool     // connections are rejected, otherwise their packets are dropped
	AllPorts bool     // else only Ports
	Ports    []uint16 // of TCP and UDP; nil means DefaultBanPorts
}

// DefaultBanPorts are the ports at which nftables keeps banned clients out.
var DefaultBanPorts = []uint16{80, 443}

// NginxBans is a file for nginx to include.
type NginxBans struct {
	File   string   // see File.ResolvePath
	Geo    bool     // lines for a geo block: "192.0.2.1/32 1;", otherwise "deny 192.0.2.1/32;"
	Reload []string // the program that makes nginx read the file, and its arguments; nil means none
}

// HAProxyBans is a map file of HAProxy: prefixes with the end of their bans, Unix seconds.
type HAProxyBans struct {
	File   string // see File.ResolvePath
	Socket string // of the runtime API; "" means that Reload or nothing makes HAProxy read the file
}

// A BanCommand is a program that is run without a shell.
type BanCommand struct {
	Ban, Unban []string // run for each ban and its end; nil means none
	Lines      []string // gets a line for each on its standard input; nil means none
}

const (
	exportExample  = "{nftables: {action: drop}}"
	commandExample = "{ban: [/usr/local/bin/ban, \"{prefix}\", \"{seconds}\"], unban: [/usr/local/bin/unban, \"{prefix}\"]}"
	mostArguments  = 64
)

// BanPlaceholders are the texts in an argument of a BanCommand that are replaced.
var BanPlaceholders = []string{"{prefix}", "{addr}", "{seconds}", "{until}", "{rule}"}

func bansKeys() []key[File] {
	return []key[File]{{"kernel", func(r *reader, n *node, f *File) { // the short form of export: {nftables: {}}
		r.choice(n, "kernel", []string{"nftables"}, map[string]string{"nft": "nftables", "true": "nftables"})
		f.BanExport = &BanExport{NFTables: new(NFTables)}
	}}, {"export", func(r *reader, n *node, f *File) {
		e := new(BanExport)
		got := readMap(r, n, "export", exportExample, exportKeys(), e)
		if got == nil {
			return
		}
		if got.has("nftables") && f.BanExport != nil {
			r.fault(got.at("nftables"), "", "export: nftables is the same as kernel: leave out one")
			return
		}
		if f.BanExport != nil {
			e.NFTables = f.BanExport.NFTables
		}
		f.BanExport = e
		if e.NFTables == nil && !got.has("nginx") && !got.has("haproxy") && !got.has("command") {
			r.missing(n, "export: "+exportExample, "export: one of nftables, nginx, haproxy and command is needed")
			f.BanExport = nil
		}
	}}}
}

func readBans(r *reader, n *node, f *File) {
	got := readMap(r, n, "bans", "{export: "+exportExample+"}", bansKeys(), f)
	if got != nil && !got.has("export") && !got.has("kernel") {
		r.missing(n, "bans: {kernel: nftables}", "bans: kernel or export is needed")
	}
}

func exportKeys() []key[BanExport] {
	return []key[BanExport]{
		{"nftables", func(r *reader, n *node, e *BanExport) {
			e.NFTables = new(NFTables)
			readMap(r, n, "nftables", "{action: drop, ports: [80, 443]}", nftablesKeys(), e.NFTables)
		}},
		{"nginx", func(r *reader, n *node, e *BanExport) {
			e.Nginx = new(NginxBans)
			got := readMap(r, n, "nginx", "{file: /var/lib/fairshare/bans.conf}", nginxKeys(), e.Nginx)
			if got != nil && !got.has("file") {
				r.missing(n, "nginx: {file: /var/lib/fairshare/bans.conf}", "nginx: file is needed")
			}
		}},
		{"haproxy", func(r *reader, n *node, e *BanExport) {
			e.HAProxy = new(HAProxyBans)
			got := readMap(r, n, "haproxy", "{file: /var/lib/fairshare/bans.map}", haproxyKeys(), e.HAProxy)
			if got != nil && !got.has("file") {
				r.missing(n, "haproxy: {file: /var/lib/fairshare/bans.map}", "haproxy: file is needed")
			}
		}},
		{"command", func(r *reader, n *node, e *BanExport) {
			e.Command = new(BanCommand)
			got := readMap(r, n, "command", commandExample, commandKeys(), e.Command)
			switch {
			case got == nil:
			case got.has("lines") && (got.has("ban") || got.has("unban")):
				r.fault(got.at("lines"), "", "command: either lines, or ban and unban")
			case !got.has("lines") && !(got.has("ban") && got.has("unban")):
				r.missing(n, "command: "+commandExample, "command: ban and unban are needed, or lines")
			}
		}},
		{"max", func(r *reader, n *node, e *BanExport) { e.Max = int(r.integer(n, "max", 1, mostExported)) }},
	}
}

func nftablesKeys() []key[NFTables] {
	return []key[NFTables]{
		{"action", func(r *reader, n *node, t *NFTables) {
			synonyms := map[string]string{"deny": "drop", "block": "drop", "refuse": "reject"}
			t.Reject = r.choice(n, "action", []string{"drop", "reject"}, synonyms) == "reject"
		}},
		{"ports", func(r *reader, n *node, t *NFTables) {
			if n.kind == scalarNode && n.text == "all" {
				t.AllPorts = true
				return
			}
			for _, item := range r.list(n, "ports") {
				if port := r.integer(item, "ports", 1, 65535); port > 0 && !slices.Contains(t.Ports, uint16(port)) {
					t.Ports = append(t.Ports, uint16(port))
				}
			}
		}},
	}
}

func nginxKeys() []key[NginxBans] {
	return []key[NginxBans]{
		{"file", func(r *reader, n *node, b *NginxBans) { b.File = r.writtenFile(n, "file") }},
		{"format", func(r *reader, n *node, b *NginxBans) {
			b.Geo = r.choice(n, "format", []string{"deny", "geo"}, map[string]string{"map": "geo"}) == "geo"
		}},
		{"reload", func(r *reader, n *node, b *NginxBans) { b.Reload = r.program(n, "reload", "[nginx, -s, reload]") }},
	}
}

func haproxyKeys() []key[HAProxyBans] {
	return []key[HAProxyBans]{
		{"file", func(r *reader, n *node, b *HAProxyBans) { b.File = r.writtenFile(n, "file") }},
		{"socket", func(r *reader, n *node, b *HAProxyBans) {
			if b.Socket = r.line(n, "socket"); b.Socket != "" && !filepath.IsAbs(b.Socket) {
				r.fault(n, "socket: /run/haproxy/admin.sock", "socket: the path of a Unix socket is needed")
			}
		}},
	}
}

func commandKeys() []key[BanCommand] {
	return []key[BanCommand]{
		{"ban", func(r *reader, n *node, c *BanCommand) {
			c.Ban = r.program(n, "ban", "[/usr/local/bin/ban, \"{prefix}\", \"{seconds}\"]")
		}},
		{"unban", func(r *reader, n *node, c *BanCommand) {
			c.Unban = r.program(n, "unban", "[/usr/local/bin/unban, \"{prefix}\"]")
		}},
		{"lines", func(r *reader, n *node, c *BanCommand) { c.Lines = r.program(n, "lines", "[/usr/local/bin/bans]") }},
	}
}

// program reads a program and its arguments. There is no shell, so a text with spaces is
// most likely a mistake.
func (r *reader) program(n *node, what, example string) []string {
	if n.kind == scalarNode && strings.ContainsAny(n.text, " \t|>&;$") {
		r.fault(n, what+": "+example, "%s: the program and each argument are items of a list, because there is no shell", what)
		return nil
	}
	var argv []string
	for _, item := range r.list(n, what) {
		s, ok := r.text(item, what)
		switch {
		case !ok:
			return nil
		case strings.ContainsFunc(s, control):
			r.fault(item, "", "%s: control characters and line ends are not allowed", what)
			return nil
		}
		argv = append(argv, s)
	}
	if len(argv) > 0 && argv[0] == "" {
		r.fault(n, what+": "+example, "%s: the name of the program is empty", what)
	}
	if len(argv) > mostArguments {
		r.fault(n, "", "%s: more than %d arguments", what, mostArguments)
	}
	return argv
}

// writtenFile reads the name of a file that fairshare writes.
func (r *reader) writtenFile(n *node, what string) string {
	s := r.line(n, what)
	switch {
	case s == "":
	case strings.Contains(s, "://") || s == "-" || strings.HasSuffix(s, "/") || s == "." || s == ".." ||
		strings.HasPrefix(s, "~") || strings.HasPrefix(s, "/dev/"):
		r.fault(n, "write the full path", "%s: %s is not the name of a file", what, quote(s))
	case r.sameFile(s, filepath.Base(r.file.Name)):
		r.fault(n, "", "%s: this is the policy file itself", what)
	default:
		return s
	}
	return ""
}

// Exports reports whether a ban of a rule is exported: it holds for every request of the
// client. What keeps clients out before they reach a server does not see requests.
func Exports(rule *fairshare.Rule) bool {
	return rule.Ban != nil && !rule.DryRun && (rule.Ban.All || reflect.ValueOf(rule.Match).IsZero())
}

// warnBanExport warns of bans that are not exported, and of an export that never has one.
func (r *reader) warnBanExport() {
	if r.file.BanExport == nil {
		return
	}
	bans := find(r.root, "bans")
	at := firstNode(find(bans, "export"), find(bans, "kernel"), r.root)
	banning, exported, own := 0, 0, []string(nil)
	for i := range r.file.Policy.Rules {
		rule := &r.file.Policy.Rules[i]
		switch {
		case rule.Ban == nil || rule.BanKind() == fairshare.ByBot:
		case Exports(rule):
			exported++
			banning++
		default:
			banning++
			if !r.rules[i].builtIn {
				own = append(own, quote(rule.Name))
			}
		}
	}
	switch {
	case banning == 0:
		r.warn(at, "a rule needs ban: {after: 20, for: 10m, all: true}", "export: no rule bans addresses: only bans of operators are exported")
	case len(own) > 0:
		r.warn(at, "ban: {..., all: true} bans from the whole site",
			"export: bans of %s hold for some requests only: they are not exported", prose.List(own[:min(len(own), 5)], "and"))
	}
	if r.file.Policy.DryRun && exported > 0 {
		r.warn(at, "", "export: with dry_run: true nothing is exported")
	}
}

// description says where bans are handed to.
func (e *BanExport) description() string {
	var to []string
	if t := e.NFTables; t != nil {
		verb := "drops"
		if t.Reject {
			verb = "rejects"
		}
		ports := "all ports"
		if !t.AllPorts {
			list := t.Ports
			if list == nil {
				list = DefaultBanPorts
			}
			ports = "the ports " + prose.List(portTexts(list), "and")
			if len(list) == 1 {
				ports = "port " + portTexts(list)[0]
			}
		}
		to = append(to, fmt.Sprintf("nftables, which %s their packets to %s", verb, ports))
	}
	if b := e.Nginx; b != nil {
		to = append(to, "nginx in "+printable(b.File))
	}
	if b := e.HAProxy; b != nil {
		to = append(to, "HAProxy in "+printable(b.File))
	}
	if c := e.Command; c != nil {
		program := c.Lines
		if program == nil {
			program = c.Ban
		}
		if len(program) > 0 {
			to = append(to, "the program "+printable(program[0]))
		}
	}
	most := e.Max
	if most == 0 {
		most = DefaultMaxExported
	}
	return fmt.Sprintf("addresses that are banned from the whole site are handed to %s; %s at most.", prose.List(to, "and"),
		prose.Number(most))
}

func portTexts(ports []uint16) (texts []string) {
	for _, p := range ports {
		texts = append(texts, fmt.Sprint(p))
	}
	return texts
}
