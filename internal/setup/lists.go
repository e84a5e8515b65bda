package setup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/prefixes"
	"fairshare/policyfile"
)

// userAgent is the User-Agent of requests for lists and ranges.
func userAgent() string { return "fairshare/" + cli.Version() }

// ListOptions say how lists from files and URLs are opened.
type ListOptions struct {
	State string // the folder with copies of what URLs answered; "": no copies
	// FetchLater leaves a list empty if its URL has no copy, until Run.
	FetchLater bool
	Log        func(string)      // gets one line for each problem; nil: nobody
	Changed    func(name string) // called when a list gets another version; nil: nobody
	Previous   *Lists            // has the version in use of a URL without a copy; nil: none
}

// Lists are the lists of a policy file that come from files and URLs. A nil
// *Lists has none. It is safe for concurrent use.
type Lists struct {
	file   *policyfile.File
	keeper *prefixes.Keeper
}

// OpenLists loads the lists of a policy file that come from files and URLs. It
// returns nil if there are none. A list that is missing or broken is an error
// with the position in the policy file.
func OpenLists(ctx context.Context, file *policyfile.File, opts ListOptions) (*Lists, error) {
	if len(file.Sources) == 0 {
		return nil, nil
	}
	sets := map[string]*policyfile.AddrSet{}
	sources := make([]prefixes.Source, 0, len(file.Sources))
	for _, s := range file.Sources {
		sets[s.Name] = s.Set
		sources = append(sources,
			prefixes.Source{Name: s.Name, File: file.ResolvePath(s.File), URL: s.URL, Every: s.Every})
	}
	changed := opts.Changed // not all of opts, which has the lists of the former policy file, and these those before
	keeper, err := prefixes.Open(ctx, prefixes.Options{
		Sources: sources,
		Folder:  subfolder(opts.State, "lists"),
		Later:   opts.FetchLater,
		Log:     opts.Log,
		Agent:   userAgent(),
		Had:     opts.Previous.inUse,
		Check: func(u prefixes.Update) error {
			if slices.Contains(file.TrustedProxies, u.Name) &&
				slices.ContainsFunc(u.Prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
				return errors.New(
					"it contains all addresses, and trusted_proxies uses it: any client could claim any address")
			}
			return nil
		},
		Change: func(u prefixes.Update) {
			sets[u.Name].Replace(u.Prefixes)
			if changed != nil {
				changed(u.Name)
			}
		},
	})
	if err != nil {
		return nil, listFaults(file, err)
	}
	return &Lists{file: file, keeper: keeper}, nil
}

// Run keeps the lists up to date until ctx ends.
func (l *Lists) Run(ctx context.Context) {
	if l != nil {
		l.keeper.Run(ctx)
	}
}

// Status describes each list, in the order of the policy file's Sources.
func (l *Lists) Status() []prefixes.Status {
	if l == nil {
		return nil
	}
	return l.keeper.Status()
}

// String returns the name and size of each list, "" if there are none.
func (l *Lists) String() string {
	var all []string
	for _, s := range l.Status() {
		all = append(all, s.Name+" "+PrefixCount(s.Prefixes))
	}
	return strings.Join(all, ", ")
}

// PrefixCount returns a number of prefixes as text.
func PrefixCount(n int) string {
	switch n {
	case 0:
		return "no prefix"
	case 1:
		return "1 prefix"
	}
	return fmt.Sprintf("%d prefixes", n)
}

// inUse returns the version of a URL that is in use.
func (l *Lists) inUse(s prefixes.Source) (prefixes.Update, bool) {
	if l == nil {
		return prefixes.Update{}, false
	}
	same := func(o policyfile.Source) bool { return o.Name == s.Name && o.URL == s.URL }
	i := slices.IndexFunc(l.file.Sources, same)
	if i < 0 {
		return prefixes.Update{}, false
	}
	at := l.Status()[i].At
	return prefixes.Update{Name: s.Name, Prefixes: l.file.Sources[i].Set.Prefixes(), At: at}, !at.IsZero()
}

// listFaults turns the errors of lists into errors of the policy file, each at
// the position that names the list.
func listFaults(file *policyfile.File, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	var faults []error
	for _, err := range joined.Unwrap() {
		named, hint := "", ""
		if source := (*prefixes.SourceError)(nil); errors.As(err, &source) {
			i := slices.IndexFunc(file.Sources, func(s policyfile.Source) bool { return s.Name == source.Name })
			named = file.Sources[i].File
		}
		if broken := (*prefixes.ParseError)(nil); errors.As(err, &broken) {
			hint = broken.Hint()
		}
		faults = append(faults, file.Fault(named, err, hint))
	}
	return errors.Join(faults...)
}
