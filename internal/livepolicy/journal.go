package livepolicy

import (
	"errors"
	"io"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/journal"
	"fairshare/internal/reports"
	"fairshare/policyfile"
)

// OpenJournal opens the journal that a policy file asks for.
func OpenJournal(file *policyfile.File, stderr io.Writer) (*journal.Journal, error) {
	j, err := journal.Open(journalOptions(file), stderr)
	if err != nil {
		return nil, journalError(err)
	}
	return j, nil
}

// ReplaceJournal changes an open journal to what a policy file asks for. After an error
// it goes on as before.
func ReplaceJournal(j *journal.Journal, file *policyfile.File) error {
	return journalError(j.Replace(journalOptions(file)))
}

func journalOptions(file *policyfile.File) journal.Options {
	return journal.Options{
		Format: file.Journal.Format, Max: file.Journal.Max, KeepFiles: file.Journal.KeepFiles,
		Query:      file.Journal.Query,
		IPv4Prefix: file.Policy.IPv4Prefix, IPv6Prefix: file.Policy.IPv6Prefix,
		File: file.ResolvePath(file.Journal.File),
	}
}

func journalError(err error) error {
	var open *journal.OpenError
	if errors.As(err, &open) {
		return cli.Hint(err, open.Hint)
	}
	return err
}

// journalEntry returns what the journal needs to know of refusals: the facts of the first one, and how many there are.
func (p *Policy) journalEntry(g *reports.Refusals) journal.Entry {
	r := g.Paths[0]
	entry := journal.Entry{
		Time:       g.Time.Add(g.ClockAhead),
		N:          g.N,
		Latest:     g.Last.Add(g.ClockAhead),
		LatestPath: g.Latest().Path,
		Client:     g.Addr,
		Through:    g.Via,
		Method:     g.Method,
		Host:       g.Host,
		Site:       p.Current().Guard.SiteOf(g.Host),
		Path:       r.Path,
		Query:      r.Query,
		UserAgent:  g.UserAgent,
		Bot:        g.Bot.Name,
		BotState:   g.Bot.State.String(),
		ASN:        g.Owner.ASN,
		Owner:      g.Owner.Name,
		Fleet:      g.Fleet,
		Robots:     r.Robots,
		Cookies:    g.Cookies,
		Rule:       g.RuleName(),
		Action:     g.Action.String(),
		DryRun:     g.DryRun,
		Watch:      p.watches,
		Room:       g.Room,
		Status:     g.Status,
		RetryAfter: g.RetryAfter,
		ID:         g.ID,
	}
	if lim := g.Limit; lim != nil {
		entry.Resource, entry.Used, entry.Allowed = lim.Resource.String(), g.Tally.Spent(), lim.Allowed()
		entry.InProgress = g.Tally.Held
		entry.Ceiling = g.Ceiling
	}
	switch g.Ban {
	case fairshare.BanStarted:
		entry.Ban = journal.BanStarted
	case fairshare.BanInForce:
		entry.Ban = journal.BanInForce
	}
	return entry
}
