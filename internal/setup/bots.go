package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/botauth"
	"fairshare/bots"
	"fairshare/internal/lookup"
	"fairshare/internal/proxy"
	"fairshare/policyfile"
)

// A BotIdentifier finds out which bot a client is, and the host names of its
// address. It is safe for concurrent use.
type BotIdentifier struct {
	Table    *bots.Table
	Verifier *bots.Verifier

	signatures *botauth.Verifier

	ranges   *bots.Ranges
	refresh  time.Duration    // of ranges; 0: never
	explicit bool             // the policy file says how often
	lookups  *lookup.Resolver // nil: the DNS is not used
	options  lookup.Options   // of lookups

	usesHost  hostTest                  // the host names that the policy and the bots use
	preferred *atomic.Pointer[hostTest] // the host names that lookups prefers; shared with lookups
}

// A hostTest reports whether a host name is one of a set.
type hostTest func(host string) bool

// BotOptions say how bots are identified.
type BotOptions struct {
	UseDNS  bool         // look up host names and DNS lists
	Started time.Time    // when the program began to verify signatures; zero means that it only explains them
	Log     func(string) // gets one line for each problem of the DNS; nil: nobody
	// Confirmed gets the addresses of bots, and their names, that the DNS has confirmed; nil: nobody. A BotIdentifier
	// that takes over the DNS cache of Previous keeps its Confirmed.
	Confirmed func(addr netip.Addr, names []string)
	Previous  *BotIdentifier // of the policy that this one replaces; nil: none
}

// NewBotIdentifier returns the bot identifier of a policy file. It takes over
// the ranges of the previous one, and its DNS cache if the policy file asks the
// same DNS. Call Close in the end.
func NewBotIdentifier(file *policyfile.File, opts BotOptions) (*BotIdentifier, error) {
	b := &BotIdentifier{refresh: file.RefreshRanges(), explicit: file.Bots.Refresh > 0}
	var err error
	if b.Table, err = BotTable(file.ResolvePath(file.Bots.Table)); err != nil {
		return nil, err
	}
	b.usesHost = usedHosts(b.Table, &file.Policy)
	previous := opts.Previous
	if previous != nil {
		b.ranges = previous.ranges
	} else {
		b.ranges = bots.NewRanges()
	}
	verifier := bots.Options{Table: b.Table, Ranges: b.ranges, LocalNames: file.DNS.Server != "",
		Agents: map[string]string{}}
	for host, agent := range file.Bots.Agents {
		verifier.Agents[host] = agent.Bot
	}
	if b.signatures, err = newSignatures(file, b.Table, opts); err != nil {
		return nil, err
	}
	verifier.Signatures = b.signatures
	b.options = lookup.Options{Server: file.DNS.Server}
	if b.options.Lists, err = dnsLists(file); err != nil {
		return nil, err
	}
	switch {
	case !opts.UseDNS:
	case previous != nil && previous.lookups != nil && reflect.DeepEqual(previous.options, b.options):
		b.lookups, b.preferred = previous.lookups, previous.preferred
	default:
		preferred := new(atomic.Pointer[hostTest])
		preferred.Store(&b.usesHost)
		b.preferred = preferred
		options := b.options
		options.Log, options.Confirmed = opts.Log, opts.Confirmed
		options.Prefer = func(host string) bool { return (*preferred.Load())(host) }
		if b.lookups, err = lookup.New(options); err != nil {
			return nil, fmt.Errorf("dns: %w", err)
		}
	}
	if b.lookups != nil {
		verifier.Names = b.lookups
	}
	b.Verifier = bots.NewVerifier(verifier)
	return b, nil
}

// newSignatures returns the verifier of signatures by the agents of a policy file and of
// a table of bots.
func newSignatures(file *policyfile.File, table *bots.Table, opts BotOptions) (*botauth.Verifier, error) {
	o := botauth.Options{Start: opts.Started, Log: opts.Log, UserAgent: userAgent()}
	if file.Hosts != nil {
		o.Host = proxy.HostTest(file.Hosts)
	}
	if opts.Previous != nil {
		o.Previous = opts.Previous.signatures
	}
	for _, host := range slices.Sorted(maps.Keys(file.Bots.Agents)) {
		agent := botauth.Agent{Host: host}
		if name := file.Bots.Agents[host].Keys; name != "" {
			keys, err := readKeys(file.ResolvePath(name))
			if err != nil {
				return nil, errors.Join(file.Fault(name, fmt.Errorf("bots: agents: %s: %w", host, err),
					"the file is a JWKS with Ed25519 keys, such as the agent publishes at https://"+host+
						botauth.DirectoryPath))
			}
			for _, k := range keys {
				if k.ID == botauth.TestKey && opts.Log != nil {
					opts.Log("WARNING: " + name + " has the test key of RFC 9421: anybody can sign with it")
				}
			}
			agent.Keys = keys
		}
		o.Agents = append(o.Agents, agent)
	}
	for _, host := range table.Agents() {
		if _, named := file.Bots.Agents[host]; !named {
			o.Agents = append(o.Agents, botauth.Agent{Host: host})
		}
	}
	return botauth.NewVerifier(o), nil
}

// readKeys reads the keys of an agent from a file.
func readKeys(path string) ([]botauth.Key, error) {
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	keys, err := botauth.ParseDirectory(data)
	if err == nil && len(keys) == 0 {
		err = errors.New(path + " has no Ed25519 key")
	}
	return keys, err
}

// SignedRequest returns what a signature may cover of a request. secure says that the
// client used TLS; the connection may be one of a proxy that ended it.
func SignedRequest(r *http.Request, secure bool) *botauth.Request {
	s := &botauth.Request{Method: r.Method, Host: r.Host, Target: r.RequestURI, Header: r.Header}
	if s.Target == "" { // made inside this process
		s.Target = r.URL.RequestURI()
	}
	if r.TLS != nil || secure {
		s.Scheme = "https"
	}
	return s
}

// RunKeys fetches the keys of agents whose signatures come, until ctx ends.
func (b *BotIdentifier) RunKeys(ctx context.Context) { b.signatures.Run(ctx) }

// Activate makes DNS lookups prefer the host names that this policy uses. The
// lookups may have been started for another policy.
func (b *BotIdentifier) Activate() {
	if b.preferred != nil {
		b.preferred.Store(&b.usesHost)
	}
}

// Lookups returns the facts about addresses for rules; nil if the DNS is not
// used.
func (b *BotIdentifier) Lookups() fairshare.Lookups {
	if b.lookups == nil {
		return nil
	}
	return b.lookups
}

// DNS returns the DNS resolver; nil if the DNS is not used.
func (b *BotIdentifier) DNS() *lookup.Resolver { return b.lookups }

// Ranges describes the published ranges in use.
func (b *BotIdentifier) Ranges() []bots.RangeSet { return b.ranges.Sets() }

// LoadRanges reads the copies of published ranges in the state folder, unless the
// policy file has refresh: never.
func (b *BotIdentifier) LoadRanges(state string, log func(string)) error {
	folder := subfolder(state, "ranges")
	if b.refresh <= 0 || folder == "" {
		return nil
	}
	if _, err := os.Stat(folder); err != nil && !b.explicit {
		return nil // there are none, and it must not be created
	}
	return b.ranges.Load(bots.Refresh{Folder: folder, Log: log})
}

// rangesDelay is the time from the start to the first fetch of ranges that the policy
// file does not ask for. The ranges that are part of the program are in use until then.
const rangesDelay = time.Minute

// RunRanges keeps the published ranges up to date until ctx ends, unless the policy
// file has refresh: never. The state folder, "" for none, has copies of them. If the
// policy file does not say how often, the first fetch is later, and problems are not
// logged: the machine may have no network.
func (b *BotIdentifier) RunRanges(ctx context.Context, state string, log func(string)) error {
	if b.refresh <= 0 {
		return nil
	}
	refresh := bots.Refresh{Every: b.refresh, Folder: subfolder(state, "ranges"), Log: log, Agent: userAgent()}
	if !b.explicit {
		refresh.Delay, refresh.Log = rangesDelay, nil
	}
	return b.ranges.Run(ctx, refresh)
}

// Close ends the DNS lookups, unless next continues to use them; next may be
// nil.
func (b *BotIdentifier) Close(next *BotIdentifier) {
	if b.lookups != nil && (next == nil || next.lookups != b.lookups) {
		b.lookups.Close()
	}
}

// BotTable returns the bots of a file, or the built-in ones if path is "".
func BotTable(path string) (*bots.Table, error) {
	if path == "" {
		return bots.BuiltIn(), nil
	}
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	return bots.LoadTable(path)
}

// BotNames returns the names and categories of a table of bots, for
// [policyfile.Options]. A path of "" means the built-in table.
func BotNames(path string) ([]policyfile.BotName, error) {
	table, err := BotTable(path)
	if err != nil {
		return nil, err
	}
	var names []policyfile.BotName
	for _, c := range bots.Categories() {
		names = append(names, policyfile.BotName{Name: c.Name, Category: true})
	}
	for b := range table.Bots {
		names = append(names, policyfile.BotName{
			Name: b.Name, Categories: b.Categories, Operator: b.OperatorName(), UserTriggered: b.UserTriggered,
			Checked: len(b.Ranges)+len(b.Domains)+len(b.Signers) > 0,
		})
	}
	return names, nil
}

// dnsLists returns the DNS lists of a policy file with their access keys.
func dnsLists(file *policyfile.File) (map[string]lookup.List, error) {
	lists := map[string]lookup.List{}
	for name, l := range file.DNS.Lists {
		list := lookup.List{Zone: l.Zone}
		if l.KeyFile != "" {
			key, err := readAccessKey(file.ResolvePath(l.KeyFile))
			if err != nil {
				return nil, errors.Join(file.Fault(l.KeyFile, fmt.Errorf("dns: %s: %w", name, err),
					"the file contains only the access key: twelve letters from a to z"))
			}
			list.Key = key
		}
		lists[name] = list
	}
	return lists, nil
}

// checkRegular returns an error if a file cannot be read as a whole: opening a
// pipe would wait for its writer.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return err
}

// readAccessKey reads an access key. Its errors never contain what the file
// contains.
func readAccessKey(path string) (string, error) {
	if err := checkRegular(path); err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(data))
	if len(key) != 12 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz") != "" {
		return "", errors.New(path + " does not contain an access key of http:BL")
	}
	return key, nil
}

// usedHosts returns a test for the host names that matter to a policy: those
// of verified bots, and those in conditions on host names.
func usedHosts(table *bots.Table, policy *fairshare.Policy) hostTest {
	domains := map[string]bool{}
	for b := range table.Bots {
		for _, d := range b.Domains {
			domains[d] = true
		}
	}
	var suffixes []string // of the policy's patterns
	var gather func(m *fairshare.Match)
	gather = func(m *fairshare.Match) {
		for _, pattern := range m.Hostname {
			suffix := pattern[strings.LastIndexByte(pattern, '*')+1:]
			if suffix != "" && !strings.HasPrefix(pattern, "re:") {
				suffixes = append(suffixes, suffix)
			}
		}
		for i := range m.Not {
			gather(&m.Not[i])
		}
	}
	for i := range policy.Rules {
		gather(&policy.Rules[i].Match)
		if ban := policy.Rules[i].Ban; ban != nil && ban.Unless != nil {
			gather(ban.Unless)
		}
	}
	return func(host string) bool {
		for _, suffix := range suffixes {
			if strings.HasSuffix(host, suffix) {
				return true
			}
		}
		for name, found := host, true; found; _, name, found = strings.Cut(name, ".") {
			if domains[name] {
				return true
			}
		}
		return false
	}
}
