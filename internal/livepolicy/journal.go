package livepolicy

import (
	"errors"
	"io"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/journal"
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

// JournalEntry returns the line of the journal about a refusal.
func (p *Policy) JournalEntry(r *httpguard.Report) journal.Entry {
	entry := journal.Entry{
		Time:       p.Wall(r.Request.Time),
		Client:     r.Request.Addr,
		Through:    r.Request.Via,
		Method:     r.Request.Method,
		Host:       r.Request.Host,
		Site:       p.Current().Guard.SiteOf(r.Request.Host),
		Path:       LoggablePath(r.Request),
		Query:      r.Request.Query,
		UserAgent:  r.Request.UserAgent,
		Bot:        r.Request.Bot.Name,
		BotState:   r.Request.Bot.State.String(),
		ASN:        r.Request.Owner.ASN,
		Owner:      r.Request.Owner.Name,
		Fleet:      r.Request.Fleet,
		Cookies:    fairshare.Cookies(r.Request.Header),
		Action:     r.Finding.Action.String(),
		DryRun:     r.DryRun,
		Room:       r.WaitingRoom,
		Status:     r.Status,
		RetryAfter: r.RetryAfter,
		ID:         r.ID,
	}
	if rule := r.Finding.Rule; rule != nil {
		entry.Rule, entry.Robots = rule.Name, r.Request.Robots.Reason(rule)
		if lim := r.Finding.Limit; lim != nil {
			tally := &r.Finding.Tally
			entry.Resource, entry.Used, entry.Allowed = lim.Resource.String(), tally.Spent(), lim.Allowed()
			entry.InProgress = tally.Held
			entry.Ceiling = r.Finding.Ceiling
		}
	}
	switch r.Finding.Ban {
	case fairshare.BanStarted:
		entry.Ban = journal.BanStarted
	case fairshare.BanInForce:
		entry.Ban = journal.BanInForce
	}
	return entry
}
