package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

// operatorCommands work on the registry, whether a server runs or not.
type operatorCommands struct {
	Ban     banCmd     `cmd:"" help:"Ban an address, a prefix or a bot, for a time or for ever."`
	Unban   unbanCmd   `cmd:"" help:"End a ban, an operator's or a rule's."`
	Allow   allowCmd   `cmd:"" help:"Let an address, a prefix or a bot in, whatever it does."`
	Unallow unallowCmd `cmd:"" help:"Take an allow back."`
	Label   labelCmd   `cmd:"" help:"Label a client, for match: {label: …} in rules."`
	Unlabel unlabelCmd `cmd:"" help:"Take a label away."`
	Note    noteCmd    `cmd:"" help:"Write a note on a client."`
	Bans    bansCmd    `cmd:"" help:"List who is banned."`
	Clients clientsCmd `cmd:"" help:"List who comes, and how much they had."`
	Client  clientCmd  `cmd:"" help:"Tell everything that is known of one client."`
	Why     whyCmd     `cmd:"" help:"Tell why a client was refused, and how to let it in."`
	Forget  forgetCmd  `cmd:"" help:"Forget all about a client."`
}

// registryFlag is what all commands of operators have.
type registryFlag struct {
	State string `placeholder:"DIR" help:"Folder in which serve keeps the registry."`
}

// registryName is the registry's name in the state folder.
const registryName = "registry.db"

// serviceState is the state folder of the systemd unit.
const serviceState = "/var/lib/fairshare"

// An operator is one command at work on the registry.
type operator struct {
	*environment
	*sqlregistry.Registry // nil until make, if there is none

	named    string // --state, as given
	dir      string
	settings sqlregistry.Settings
	now      time.Time        // of the command: one for all that it says
	said     []fairshare.Said // all words before the command; nil: not yet read
}

// read opens the registry to look into it.
func (f *registryFlag) read(env *environment) (*operator, error) {
	return f.open(env, sqlregistry.Options{ReadOnly: true, MustExist: true})
}

// change opens the registry to change what is in it.
func (f *registryFlag) change(env *environment) (*operator, error) {
	return f.open(env, sqlregistry.Options{MustExist: true})
}

// say opens the registry to put something into it. If there is none, make
// makes it: words can be set before the first start.
func (f *registryFlag) say(env *environment) (*operator, error) {
	return f.open(env, sqlregistry.Options{})
}

func (f *registryFlag) open(env *environment, opts sqlregistry.Options) (*operator, error) {
	dir, err := registryDir(f.State, serviceState)
	if err != nil {
		return nil, err
	}
	o := &operator{environment: env, named: f.State, dir: dir, now: time.Now()}
	if f.State == "" && dir == serviceState {
		fmt.Fprintf(env.stderr, wordsPrefix+"the registry in %s is used\n", dir)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, &hintError{fmt.Errorf("%s is no folder", dir), "name the folder in which serve keeps its registry: --state DIR"}
	}
	if _, err := os.Stat(o.path()); !opts.MustExist && errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	if err := o.use(opts); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *operator) path() string { return filepath.Join(o.dir, registryName) }

// use opens the registry.
func (o *operator) use(opts sqlregistry.Options) error {
	opts.Log = func(line string) { fmt.Fprintf(o.stderr, wordsPrefix+"%s\n", line) }
	r, err := sqlregistry.Open(o.ctx, o.path(), opts)
	if err != nil {
		return o.failed(err)
	}
	o.Registry = r
	if o.settings, err = o.Settings(o.ctx); err != nil {
		o.close()
		return o.failed(err)
	}
	return nil
}

// make makes the registry if it is not there. What root makes belongs to whom
// the folder belongs to: a server that is not root has to write it.
func (o *operator) make() error {
	if o.Registry != nil {
		return nil
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return o.failed(err)
	}
	if err := o.use(sqlregistry.Options{}); err != nil {
		return err
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		giveTo(o.dir, o.path()+end)
	}
	fmt.Fprintf(o.stderr, wordsPrefix+"a new registry was made in %s: serve has to use that folder\n", o.dir)
	return nil
}

// close ends the work.
func (o *operator) close() {
	if o.Registry != nil {
		o.Registry.Close()
	}
}

// registryDir returns the state folder; when none is named, and the default
// one has no registry, that of the systemd unit if it has one.
func registryDir(named, service string) (string, error) {
	dir, err := stateDir(named)
	if named != "" || os.Getenv("STATE_DIRECTORY") != "" {
		return dir, err
	}
	if err == nil {
		if _, err := os.Stat(filepath.Join(dir, registryName)); err == nil {
			return dir, nil
		}
	}
	if _, there := os.Stat(filepath.Join(service, registryName)); there == nil || errors.Is(there, fs.ErrPermission) {
		return service, nil
	}
	return dir, err
}

// failed says what to do about an error of the registry.
func (o *operator) failed(err error) error {
	var told *sqlregistry.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return errSilent
	case errors.Is(err, sqlregistry.ErrNotThere):
		return &hintError{fmt.Errorf("no registry in %s", o.dir), "fairshare serve makes it when it starts; if it runs with another folder, name that: --state DIR"}
	case os.Geteuid() != 0 && (errors.Is(err, fs.ErrPermission) || errors.Is(err, sqlregistry.ErrReadOnly)):
		return &hintError{err, "the registry belongs to whoever runs serve: put " + sudoFor(o.dir) + " before the command, or name another folder: --state DIR"}
	case errors.As(err, &told) && told.Hint() != "":
		return &hintError{err, told.Hint()}
	}
	return err
}

// printf writes a line of the command's result. An error ends the command with
// exit code 1, when all is done.
func (o *operator) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.stdout, format+"\n", args...); err != nil && o.lost == nil {
		o.lost = err
	}
}

// command returns a command line for the same registry.
func (o *operator) command(words string) string {
	if o.named == "" {
		return "fairshare " + words
	}
	return "fairshare " + words + " --state " + shellWord(o.named)
}

// argument returns what names a client on the command line.
func (o *operator) argument(id fairshare.ClientID) string {
	if p := id.Prefix; p.IsValid() && p.IsSingleIP() && o.clientBits(p.Addr()) < p.Bits() {
		return p.String() // the address alone would mean its client
	}
	return id.String()
}

// takeBack says how to undo what was done.
func (o *operator) takeBack(words string) { o.printf("take it back: %s", o.command(words)) }

// A named is a client as an operator names it.
type named struct {
	fairshare.ClientID
	addr netip.Addr // that was given without a length; else invalid
	word string     // its argument
	err  error      // a bot that is not in the table
}

// String tells a client whole: "2001:db8::/64 (the client of 2001:db8::1)".
func (n named) String() string {
	if n.addr.IsValid() && !n.Prefix.IsSingleIP() {
		return fmt.Sprintf("%s (the client of %s)", n.ClientID, n.addr)
	}
	return n.ClientID.String()
}

// client reads ADDR, PREFIX or BOT. An address alone means its client. A bot
// that is not in the table may still be in the registry: its err says so.
func (o *operator) client(text string) (named, error) {
	id, err := fairshare.ParseClientID(text)
	if err != nil {
		return named{}, &hintError{err, addressHint(text)}
	}
	n := named{ClientID: id}
	switch {
	case id.Bot != "":
		n.err = o.unknownBot(text)
		if n.err != nil && looksLikeAddress(text) {
			return named{}, &hintError{fmt.Errorf("%q is no address and no prefix", text), addressHint(text)}
		}
	case !strings.Contains(text, "/"):
		n.addr = clientaddr.Canonical(id.Prefix.Addr())
		if !n.addr.IsValid() {
			return named{}, &hintError{fmt.Errorf("%s stands for nobody", text), "everybody is 0.0.0.0/0 or ::/0"}
		}
		n.ClientID = fairshare.PrefixID(netip.PrefixFrom(n.addr, o.clientBits(n.addr)))
	}
	n.word = o.argument(n.ClientID)
	return n, nil
}

// knownClient is client for those who are put into the registry: bots must be
// in the table.
func (o *operator) knownClient(text string) (named, error) {
	n, err := o.client(text)
	if err == nil {
		err = n.err
	}
	return n, err
}

// clientBits is how many bits of an address tell a client.
func (o *operator) clientBits(addr netip.Addr) int {
	bits, usual := o.settings.IPv6Prefix, 64
	if addr.Is4() {
		bits, usual = o.settings.IPv4Prefix, 32
	}
	if bits < 1 || bits > addr.BitLen() {
		return usual
	}
	return bits
}

// looksLikeAddress reports whether a text was rather meant as an address than
// as the name of a bot.
func looksLikeAddress(text string) bool {
	return strings.Trim(text, "0123456789abcdefABCDEFxX.:/*-%[]") == "" && strings.ContainsAny(text, ".:/")
}

func addressHint(text string) string {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return "without the port: " + at.Addr().String()
	}
	if p := meantPrefix(text); p.IsValid() {
		return "a prefix holds them all: " + p.String()
	}
	return "an address as 203.0.113.9, a prefix as 203.0.113.0/24, or a bot as googlebot"
}

// meantPrefix returns the prefix that holds what is written as 203.0.113.* or
// 203.0.113.0-255; an invalid one for any other text.
func meantPrefix(text string) netip.Prefix {
	if from, to, ok := strings.Cut(text, "-"); ok {
		if !strings.ContainsAny(to, ".:") {
			to = from[:strings.LastIndexByte(from, '.')+1] + to
		}
		first, err := netip.ParseAddr(from)
		last, err2 := netip.ParseAddr(to)
		if err != nil || err2 != nil || first.BitLen() != last.BitLen() || first.Zone()+last.Zone() != "" || last.Less(first) {
			return netip.Prefix{}
		}
		bits := first.BitLen()
		for !netip.PrefixFrom(first, bits).Contains(last) {
			bits--
		}
		return netip.PrefixFrom(first, bits).Masked()
	}
	fixed := strings.TrimRight(text, ".*xX")
	n := strings.Count(fixed, ".") + 1
	addr, err := netip.ParseAddr(fixed + strings.Repeat(".0", max(0, 4-n)))
	if err != nil || !addr.Is4() || n > 3 {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, 8*n)
}

// unknownBot returns why a name is none of a bot's; nil when it is one of
// those that the server knows.
func (o *operator) unknownBot(name string) error {
	name = strings.ToLower(name)
	if slices.Contains(o.settings.Bots, name) || o.settings.Bots == nil && bots.BuiltIn().Bot(name) != nil {
		return nil
	}
	var names []policyfile.BotName
	for _, c := range bots.Categories() {
		if c.Name == name {
			return &hintError{fmt.Errorf("%s is a category of bots, and one bot is needed", name),
				fmt.Sprintf("a rule of the policy speaks of all of them: {name: no %s, match: {bot: %[1]s}, block: true}", name)}
		}
	}
	for _, s := range o.settings.Bots {
		names = append(names, policyfile.BotName{Name: s})
	}
	if names == nil {
		for b := range bots.BuiltIn().Bots {
			names = append(names, policyfile.BotName{Name: b.Name, Operator: b.Operator})
		}
	}
	return &hintError{fmt.Errorf("no bot is called %q", name), botHint(name, names)}
}

// botHint is the hint that a policy file with that name gets.
func botHint(name string, names []policyfile.BotName) string {
	if strings.Contains(name, ".") {
		return fmt.Sprintf("a host name is a matter of the policy: {name: not them, match: {hostname: %q}, block: true}", name)
	}
	known := policyfile.Options{Bots: func(string) ([]policyfile.BotName, error) { return names, nil }}
	_, err := known.Parse("", fmt.Appendf(nil, "rules: [{name: a, match: {bot: %q}, block: true}]", name))
	for _, fault := range policyfile.Faults(err) {
		if fault.Hint != "" {
			return fault.Hint
		}
	}
	return "fairshare bot 'USER AGENT' tells names"
}
