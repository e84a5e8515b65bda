package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"fairshare/internal/journal"
	"fairshare/policyfile"
)

// reload reads the policy and the certificates anew and reopens the journal.
// Counters of limits that stay, and bans, are kept; requests in progress are
// settled by the policy that judged them. With a fault nothing changes.
func (s *server) reload(ctx context.Context) {
	s.manager.Reloading()
	defer func() { s.manager.Ready(s.status()) }()
	if err := tellFaults(s.journal, s.tryReload(ctx)); err != nil {
		if text := oneLine(err); text != "" {
			s.say("%s", text)
		}
		var hinted *hintError
		if errors.As(err, &hinted) {
			fmt.Fprintf(s.journal, "hint: %s\n", hinted.hint)
		}
		s.say("SIGHUP: nothing was changed; the old policy goes on")
	}
}

func (s *server) tryReload(ctx context.Context) error {
	file, err := s.load(s.journal)
	if err != nil {
		return err
	}
	old := s.site.Load()
	later := untilRestart(old.file, file)
	st, err := newSite(ctx, file, s.terms, old)
	if err != nil {
		return err
	}
	defer func() {
		if s.site.Load() != st {
			st.who.close(old.who)
			st.meter.end(old.meter)
		}
	}()
	if isItself(s.inbound.Addr(), st.upstream) {
		return itselfError(st.upstream)
	}
	certs := s.certs.Load()
	if certs != nil {
		if certs, err = loadCertificates(beside(file.Name, file.TLS.Cert), beside(file.Name, file.TLS.Key)); err != nil {
			return err
		}
	}
	if err := s.journal.Replace(journalOptions(file)); err != nil { // the last that can fail
		return journalError(err)
	}
	s.certs.Store(certs)
	s.site.Store(st)
	s.census.Replace(&file.Policy)
	s.inbound.Replace(s.inboundConfig(st))
	st.share = s.shareOf(st)
	s.proxy.Replace(s.proxyConfig(st))
	s.sessions.Replace(sessionsConfig(file))
	s.guard.Replace(st.guard, s.guardOptions(st))
	old.stop()
	old.meter.end(st.meter)
	old.who.close(st.who)
	st.start(s.terms)
	s.memory.tellCommands(ctx, st)
	s.say("SIGHUP: %s was read anew: %s, %s; %s", file.Name, rules(len(file.Policy.Rules)), st.mode(), kept(st.limiter.Fresh()))
	for _, now := range changes(old, st) {
		s.say("%s", now)
	}
	if len(later) > 0 {
		s.say("warning: what has changed of %s holds from a restart on", strings.Join(later, ", "))
	}
	for _, warning := range s.warnings(st) {
		s.say("warning: %s", warning)
	}
	if *st.upstream != *old.upstream {
		s.tryUpstream(ctx)
	}
	return nil
}

// changes tells what else a reload has changed of what was said at start.
func changes(old, now *site) (lines []string) {
	tell := func(what, was, is string) {
		if is != was {
			lines = append(lines, what+": "+is)
		}
	}
	tell("upstream", old.upstream.String(), now.upstream.String())
	tell("clients", old.believes(), now.believes())
	tell("lists", cmp.Or(holdings(old.lists), "none"), cmp.Or(holdings(now.lists), "none"))
	tell("sessions", old.shares(), now.shares())
	tell("costs", cmp.Or(old.costs(), "nothing asks for them"), cmp.Or(now.costs(), "nothing asks for them"))
	tell("share", cmp.Or(old.sharing(), "none"), cmp.Or(now.sharing(), "none"))
	tell("journal", old.journals(), now.journals())
	return lines
}

// untilRestart names what a new file has changed that a running server cannot
// change, and takes it over from the old file.
func untilRestart(old, file *policyfile.File) (names []string) {
	if file.Listen != old.Listen {
		names, file.Listen = append(names, "listen"), old.Listen
	}
	if file.Memory != old.Memory {
		names, file.Memory = append(names, "clients.memory"), old.Memory
	}
	if file.ProxyProtocol != old.ProxyProtocol {
		names, file.ProxyProtocol = append(names, "proxy_protocol"), old.ProxyProtocol
	}
	if file.H2C != old.H2C {
		names, file.H2C = append(names, "h2c"), old.H2C
	}
	if file.Registry != old.Registry {
		names, file.Registry = append(names, "registry"), old.Registry
	}
	if (file.TLS == nil) != (old.TLS == nil) {
		names, file.TLS = append(names, "tls"), old.TLS
	}
	if file.Bounds.Streams != old.Bounds.Streams || file.Bounds.Header != old.Bounds.Header {
		names = append(names, "bounds.streams and bounds.header")
		file.Bounds.Streams, file.Bounds.Header = old.Bounds.Streams, old.Bounds.Header
	}
	return names
}

// kept tells which limits begin anew and that all else is kept.
func kept(fresh []string) string {
	if len(fresh) == 0 {
		return "all counters and bans are kept"
	}
	return "counted anew: " + firstFew(fresh) + "; other counters and all bans are kept"
}

// firstFew names five of many.
func firstFew(names []string) string {
	if n := len(names); n > 5 {
		names = append(names[:5:5], fmt.Sprintf("and %d more", n-5))
	}
	return strings.Join(names, ", ")
}

// openJournal opens the journal that a policy asks for.
func openJournal(file *policyfile.File, stderr io.Writer) (*journal.Journal, error) {
	j, err := journal.Open(journalOptions(file), stderr)
	if err != nil {
		return nil, journalError(err)
	}
	return j, nil
}

func journalOptions(file *policyfile.File) journal.Options {
	o := journal.Options{
		Format: file.Journal.Format, Max: file.Journal.Max, Keep: file.Journal.Keep, Query: file.Journal.Query,
		IPv4Prefix: file.Policy.IPv4Prefix, IPv6Prefix: file.Policy.IPv6Prefix,
	}
	if file.Journal.File != "" {
		o.File = beside(file.Name, file.Journal.File)
	}
	return o
}

func journalError(err error) error {
	var open *journal.OpenError
	if errors.As(err, &open) {
		return &hintError{err, open.Hint}
	}
	return err
}
