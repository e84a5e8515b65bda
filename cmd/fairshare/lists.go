package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"fairshare/internal/prefixes"
	"fairshare/policyfile"
)

// agent is what URLs of lists and ranges are asked as.
func agent() string { return "fairshare/" + versionText() }

// A listing is how lists from files and URLs are opened.
type listing struct {
	state   string       // folder for copies of what URLs answer; "": none are kept
	later   bool         // URLs without a copy are not asked now
	log     func(string) // one line for each problem
	changed func(name string)
	old     *site // what its lists hold goes on where there is no copy; nil: none
}

// openLists loads the lists of a policy that come from files and URLs; nil
// when there are none.
func openLists(ctx context.Context, file *policyfile.File, how listing) (*prefixes.Keeper, error) {
	if len(file.Sources) == 0 {
		return nil, nil
	}
	sets := map[string]*policyfile.AddrSet{}
	sources := make([]prefixes.Source, 0, len(file.Sources))
	for _, s := range file.Sources {
		sets[s.Name] = s.Set
		sources = append(sources, prefixes.Source{Name: s.Name, File: file.Beside(s.File), URL: s.URL, Every: s.Every})
	}
	keeper, err := prefixes.Open(ctx, prefixes.Options{
		Sources: sources,
		Folder:  beneath(how.state, "lists"),
		Later:   how.later,
		Log:     how.log,
		Agent:   agent(),
		Had:     how.old.had,
		Check: func(u prefixes.Update) error {
			if slices.Contains(file.TrustedProxies, u.Name) && slices.ContainsFunc(u.Prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
				return errors.New("it holds all addresses, and trusted_proxies name it: everybody could claim to be anybody")
			}
			return nil
		},
		Change: func(u prefixes.Update) {
			sets[u.Name].Replace(u.Prefixes)
			if how.changed != nil {
				how.changed(u.Name)
			}
		},
	})
	if err == nil {
		return keeper, nil
	}
	return nil, listFaults(file, err)
}

// listFaults returns what is wrong with lists as faults of the policy, each
// where the list is named.
func listFaults(file *policyfile.File, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	var faults []error
	for _, err := range joined.Unwrap() {
		where, hint := "", ""
		if source := (*prefixes.SourceError)(nil); errors.As(err, &source) {
			i := slices.IndexFunc(file.Sources, func(s policyfile.Source) bool { return s.Name == source.Name })
			where = file.Sources[i].File
		}
		if broken := (*prefixes.ParseError)(nil); errors.As(err, &broken) {
			hint = broken.Hint()
		}
		faults = append(faults, file.Fault(where, err, hint))
	}
	return errors.Join(faults...)
}

// status tells how each list from files and URLs is; keeper may be nil.
func status(keeper *prefixes.Keeper) []prefixes.Status {
	if keeper == nil {
		return nil
	}
	return keeper.Status()
}

// holdings tells how much each list holds, "" when there are none.
func holdings(keeper *prefixes.Keeper) string {
	var all []string
	for _, s := range status(keeper) {
		all = append(all, s.Name+" "+prefixCount(s.Prefixes))
	}
	return strings.Join(all, ", ")
}

func prefixCount(n int) string {
	switch n {
	case 0:
		return "no prefix"
	case 1:
		return "1 prefix"
	}
	return fmt.Sprintf("%d prefixes", n)
}

// had returns what the site has in use of a URL.
func (st *site) had(s prefixes.Source) (prefixes.Update, bool) {
	if st == nil || st.lists == nil {
		return prefixes.Update{}, false
	}
	same := func(o policyfile.Source) bool { return o.Name == s.Name && o.URL == s.URL }
	i := slices.IndexFunc(st.file.Sources, same)
	if i < 0 {
		return prefixes.Update{}, false
	}
	at := st.lists.Status()[i].At // sources are as in the file
	return prefixes.Update{Name: s.Name, Prefixes: st.file.Sources[i].Set.Prefixes(), At: at}, !at.IsZero()
}

// beneath returns a folder in the state directory, "" when there is none.
func beneath(state, folder string) string {
	if state == "" {
		return ""
	}
	return filepath.Join(state, folder)
}

// remembers reports whether a policy has something to keep in the state
// directory.
func remembers(file *policyfile.File) bool {
	for _, s := range file.Sources {
		if s.URL != "" {
			return true
		}
	}
	return file.Bots.Refresh > 0
}
