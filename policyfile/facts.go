package policyfile

import (
	"errors"
	"fmt"
	"slices"

	"fairshare"
)

// Facts are data that rules may test and that are neither in the policy nor in a
// request as it arrives. The program has to provide them, and declares this by
// [File.Provide].
type Facts struct {
	Lists   bool // the prefixes of File.Sources, also of lists that are not loaded yet
	Bots    bool // Request.Bot, by the table of File.Bots
	Lookups bool // Request.Lookups: hostnames, and the DNS lists of File.DNS
	Labels  bool // Request.Override.Labels
	Owners  bool // Request.Owner, by the tables of File.ASN
	Fleets  bool // Request.Fleet, by package fleets
	Busy    bool // whether the upstream is busy, by Guard.UseBusy

	Robots bool // Request.Robots, by package robots

	// Browsers declares Request.Browser; see package browser.
	Browsers bool
	// Attempts declares Request.Attempt, Request.Excess, Request.Logins and
	// Outcome.Failed; see package logins.
	Attempts bool
	// Forms declares Request.Form; httpguard.Options.Forms sets it.
	Forms bool
}

// Provide declares that the program provides facts for the requests that f.Policy
// judges. Without it, [fairshare.NewGuard] refuses a policy whose rules test such
// facts: these conditions would never hold, and requests that the policy blocks
// would pass. A list of File.Sources needs no declaration after a call of
// [AddrSet.Replace]. Facts of earlier calls remain declared. Provide must not run
// at the same time as NewGuard.
func (f *File) Provide(facts Facts) {
	f.provided.Lists = f.provided.Lists || facts.Lists
	f.provided.Bots = f.provided.Bots || facts.Bots
	f.provided.Lookups = f.provided.Lookups || facts.Lookups
	f.provided.Labels = f.provided.Labels || facts.Labels
	f.provided.Owners = f.provided.Owners || facts.Owners
	f.provided.Fleets = f.provided.Fleets || facts.Fleets
	f.provided.Busy = f.provided.Busy || facts.Busy
	f.provided.Robots = f.provided.Robots || facts.Robots
	f.provided.Browsers = f.provided.Browsers || facts.Browsers
	f.provided.Attempts = f.provided.Attempts || facts.Attempts
	f.provided.Forms = f.provided.Forms || facts.Forms
}

// ready returns an error for each rule that tests a fact which the program does
// not provide. The error names the fact and a fix.
func (f *File) ready() error {
	var errs []error
	for i := range f.Policy.Rules {
		rule := &f.Policy.Rules[i]
		var missing []string
		add := func(text string) {
			if !slices.Contains(missing, text) {
				missing = append(missing, text)
			}
		}
		f.missing(&rule.Match, add)
		if !f.provided.Forms && rule.TestsForms() {
			add("forms (match: {form: …}, by: form:NAME); open the policy with package site, or set Request.Form by " +
				"httpguard.Options.Forms and call File.Provide(Facts{Forms: true})")
		}
		if rule.Limit != nil && !f.provided.Owners && byOwner(rule.Limit.By) {
			add("owners of addresses (by: asn)" + ownersRemedy)
		}
		if rule.Limit != nil && !f.provided.Fleets && byFleet(rule.Limit.By) {
			add("fleets (by: fleet); open the policy with package site, or set Request.Fleet by package fleets and call " +
				"File.Provide(Facts{Fleets: true})")
		}
		if rule.Limit != nil && rule.Limit.When == fairshare.Busy && !f.provided.Busy &&
			slices.Contains(f.busyRules, rule.Name) {
			add("how busy the upstream is (when: busy); open the policy with package site and a key share, or " +
				"call Guard.UseBusy and File.Provide(Facts{Busy: true})")
		}
		if !f.provided.Robots && slices.Contains(f.robotsRules, rule.Name) {
			add("robots.txt" + robotsRemedy)
		}
		if rule.Ban != nil && rule.Ban.Unless != nil {
			f.missing(rule.Ban.Unless, add)
		}
		for _, text := range missing {
			errs = append(errs, fmt.Errorf("%s: rule %q looks at %s", f.Name, rule.Name, text))
		}
	}
	return errors.Join(errs...)
}

const ownersRemedy = "; open the policy with package site, or " +
	"set Request.Owner by package asn and call File.Provide(Facts{Owners: true})"

// missing calls add for each fact that a match tests and the program does not
// provide.
func (f *File) missing(m *fairshare.Match, add func(text string)) {
	const remedy = "; open the policy with package site, or "
	if set, ok := m.Addr.(*AddrSet); ok && !f.provided.Lists {
		for i, list := range set.lists {
			if !list.isLoaded() {
				add(fmt.Sprintf("the list %q, which was not loaded from %s%s"+
					"give its prefixes to the Set in File.Sources", set.names[i], f.origin(set.names[i]), remedy))
			}
		}
	}
	if m.TestsBots() && !f.provided.Bots {
		add("bots" + remedy + "set Request.Bot and call File.Provide(Facts{Bots: true})")
	}
	for _, l := range m.Listed {
		if !f.provided.Lookups {
			add(fmt.Sprintf("the DNS list %q", l.List) + remedy +
				"set Request.Lookups and call File.Provide(Facts{Lookups: true})")
		}
	}
	if m.Hostname != nil && !f.provided.Lookups {
		add("hostnames" + remedy + "set Request.Lookups and call File.Provide(Facts{Lookups: true})")
	}
	if m.Label != nil && !f.provided.Labels {
		add("labels" + remedy + "set Request.Override.Labels and call File.Provide(Facts{Labels: true})")
	}
	if m.ASN != nil && !f.provided.Owners {
		add("owners of addresses (match: {asn: …})" + ownersRemedy)
	}
	if m.Attempt != nil && !f.provided.Attempts {
		add("attempts" + remedy + "set Request.Attempt by package logins and call File.Provide(Facts{Attempts: true})")
	}
	if m.Browser != nil && !f.provided.Browsers {
		add("browsers" + remedy + "set Request.Browser by package browser and call File.Provide(Facts{Browsers: true})")
	}
	for i := range m.Not {
		f.missing(&m.Not[i], add)
	}
}

// origin returns the file or URL of a list, without the query of the URL, which
// may contain a key.
func (f *File) origin(list string) string {
	for _, s := range f.Sources {
		switch {
		case s.Name == list && s.File != "":
			return s.File
		case s.Name == list:
			return withoutQuery(s.URL)
		}
	}
	return "its source"
}
