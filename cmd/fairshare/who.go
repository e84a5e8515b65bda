package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync/atomic"

	"fairshare"
	"fairshare/bots"
	"fairshare/internal/lookup"
	"fairshare/policyfile"
)

// A who tells who asks: which bot a client is, and what its address is called.
type who struct {
	table    *bots.Table
	ranges   *bots.Ranges
	lookups  *lookup.Resolver // nil: the DNS is not asked
	terms    lookup.Options   // of lookups
	verifier *bots.Verifier

	wanted hostTest                  // which host names the site looks for
	prefer *atomic.Pointer[hostTest] // those that lookups prefers; shared with lookups
}

// A hostTest tells some host names from all others.
type hostTest func(host string) bool

// newWho returns what a policy file asks for. With dns, names and lists are
// asked of the DNS; log is told of it, a line at a time. What an older one
// knows is kept as far as it is asked the same way.
func newWho(file *policyfile.File, dns bool, log func(string), old *who) (*who, error) {
	w := &who{}
	var err error
	if w.table, err = botTable(file.Beside(file.Bots.Table)); err != nil {
		return nil, err
	}
	w.wanted = wanted(w.table, &file.Policy)
	if old != nil {
		w.ranges = old.ranges
	} else {
		w.ranges = bots.NewRanges()
	}
	opts := bots.Options{Table: w.table, Ranges: w.ranges, LocalNames: file.DNS.Server != ""}
	w.terms = lookup.Options{Server: file.DNS.Server}
	if w.terms.Lists, err = dnsLists(file); err != nil {
		return nil, err
	}
	switch {
	case !dns:
	case old != nil && old.lookups != nil && reflect.DeepEqual(old.terms, w.terms):
		w.lookups, w.prefer = old.lookups, old.prefer
	default:
		prefer := new(atomic.Pointer[hostTest])
		prefer.Store(&w.wanted)
		w.prefer = prefer
		terms := w.terms
		terms.Log, terms.Prefer = log, func(host string) bool { return (*prefer.Load())(host) }
		if w.lookups, err = lookup.New(terms); err != nil {
			return nil, fmt.Errorf("dns: %w", err)
		}
	}
	if w.lookups != nil {
		opts.Names = w.lookups
	}
	w.verifier = bots.NewVerifier(opts)
	return w, nil
}

// use has the look-ups prefer the host names that the site looks for, if they
// were begun for another one.
func (w *who) use() {
	if w.prefer != nil {
		w.prefer.Store(&w.wanted)
	}
}

// asks returns what rules ask about addresses, nil when the DNS is not asked.
func (w *who) asks() fairshare.Lookups {
	if w.lookups == nil {
		return nil
	}
	return w.lookups
}

// close ends the look-ups, unless another goes on with them.
func (w *who) close(other *who) {
	if w.lookups != nil && (other == nil || other.lookups != w.lookups) {
		w.lookups.Close()
	}
}

// botTable returns the bots of a file, or the built-in ones.
func botTable(path string) (*bots.Table, error) {
	if path == "" {
		return bots.BuiltIn(), nil
	}
	if err := regular(path); err != nil {
		return nil, err
	}
	return bots.LoadTable(path)
}

// botNames are the bots of a table as a policy file is checked with them.
func botNames(path string) ([]policyfile.BotName, error) {
	table, err := botTable(path)
	if err != nil {
		return nil, err
	}
	var names []policyfile.BotName
	for _, c := range bots.Categories() {
		names = append(names, policyfile.BotName{Name: c.Name, Category: true})
	}
	for b := range table.Bots {
		names = append(names, policyfile.BotName{
			Name: b.Name, Categories: b.Categories, Operator: b.Operator, Steered: b.Steered, Checked: len(b.Ranges)+len(b.Domains) > 0,
		})
	}
	return names, nil
}

// dnsLists returns the DNS lists of a policy, with the keys that it names.
func dnsLists(file *policyfile.File) (map[string]lookup.List, error) {
	lists := map[string]lookup.List{}
	for name, l := range file.DNS.Lists {
		list := lookup.List{Zone: l.Zone}
		if l.KeyFile != "" {
			key, err := readKey(file.Beside(l.KeyFile))
			if err != nil {
				return nil, errors.Join(file.Fault(l.KeyFile, fmt.Errorf("dns: %s: %w", name, err), "the file holds nothing but the twelve letters of the access key"))
			}
			list.Key = key
		}
		lists[name] = list
	}
	return lists, nil
}

// regular returns why a file cannot be read as a whole: opening a pipe would
// wait for whoever writes to it.
func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	return err
}

// readKey reads an access key. No error shows what is in the file.
func readKey(path string) (string, error) {
	if err := regular(path); err != nil {
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
		return "", errors.New(path + " holds no access key of http:BL")
	}
	return key, nil
}

// wanted tells the host names that a site looks for, those of verified bots
// and of its policy, from all others.
func wanted(table *bots.Table, policy *fairshare.Policy) hostTest {
	domains := map[string]bool{}
	for b := range table.Bots {
		for _, d := range b.Domains {
			domains[d] = true
		}
	}
	var ends []string // of the policy's patterns
	var gather func(m *fairshare.Match)
	gather = func(m *fairshare.Match) {
		for _, pattern := range m.Hostname {
			if end := pattern[strings.LastIndexByte(pattern, '*')+1:]; end != "" && !strings.HasPrefix(pattern, "re:") {
				ends = append(ends, end)
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
		for _, end := range ends {
			if strings.HasSuffix(host, end) {
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
