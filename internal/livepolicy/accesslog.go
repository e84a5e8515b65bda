package livepolicy

import (
	"fmt"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/journal"
	"fairshare/internal/prose"
	"fairshare/policyfile"
)

// OpenAccessLog opens the access log that a policy file asks for. It writes nothing if the file
// asks for none.
func OpenAccessLog(j *journal.Journal, file *policyfile.File) (*journal.AccessLog, error) {
	l, err := j.OpenAccessLog(accessOptions(file))
	return l, journalError(err)
}

// ReplaceAccessLog changes an open access log to what a policy file asks for. After an error it
// goes on as before.
func ReplaceAccessLog(l *journal.AccessLog, file *policyfile.File) error {
	return journalError(l.Replace(accessOptions(file)))
}

func accessOptions(file *policyfile.File) *journal.AccessOptions {
	l := file.AccessLog
	if l == nil {
		return nil
	}
	return &journal.AccessOptions{Format: l.Format, File: file.ResolvePath(l.File), Max: l.Max, KeepFiles: l.KeepFiles,
		Query: l.Query}
}

// AccessReport returns a line about lines of the access log that were lost; "" if there are none.
func AccessReport(lost int64) string {
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf("access_log: %s lost: they could not be written in time", prose.Plural(lost, "line"))
}

// statusGone is the status of a request whose client left before the answer, as nginx logs it.
const statusGone = 499

// AccessEntry returns the line of the access log about a request.
func (p *Policy) AccessEntry(a *httpguard.Access) journal.Access {
	r := a.HTTP
	entry := journal.Access{
		Time: p.Wall(a.Time), Client: a.Addr, Through: a.Via, Method: r.Method, Target: r.RequestURI, Protocol: r.Proto,
		Host: r.Host, Referer: r.Referer(), UserAgent: r.UserAgent(), Status: a.Status, Bytes: a.Bytes,
		Took: p.Now().Sub(a.Time), Upstream: a.Took, CPU: a.CPU, Cost: a.Cost, Waited: a.Waited,
		Verdict: accessVerdict(a), DryRun: a.DryRun, ID: a.ID,
	}
	if a.Rule != nil {
		entry.Rule = a.Rule.Name
	}
	if a.Status == 0 {
		entry.Status = statusGone
	}
	return entry
}

func accessVerdict(a *httpguard.Access) string {
	switch {
	case a.Gone:
		return "gone"
	case a.WaitingRoom:
		return "room"
	case a.Action == fairshare.Undecided:
		return "unjudged"
	}
	return a.Action.String()
}
