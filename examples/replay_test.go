package examples

import (
	"bytes"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/internal/replay"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// replayed runs the policy over the example's log like fairshare replay, and returns the
// verdicts.
func replayed(t *testing.T, name string, file *policyfile.File) string {
	t.Helper()
	path := filepath.Join(name, "access.log")
	var verdicts bytes.Buffer
	report := replayLog(t, file, path, &verdicts)
	if report.Skipped != 0 || report.Verdicts.Allow+report.Verdicts.Refuse+report.Verdicts.Block != report.Lines {
		t.Errorf("%s: %d lines, %d skipped, verdicts %+v", path, report.Lines, report.Skipped, report.Verdicts)
	}
	return strings.ReplaceAll(verdicts.String(), "\t"+filepath.Join(name, "access.log")+"\t", "\taccess.log\t")
}

// provided has the facts that serve would provide.
var provided = policyfile.Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true, Attempts: true,
	Forms:  true,
	Fleets: true, Browsers: true}

// replayLog runs a policy over a log like fairshare replay. verdicts may be nil.
func replayLog(t *testing.T, file *policyfile.File, path string, verdicts io.Writer) *replay.Report {
	t.Helper()
	resolver, err := clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header})
	if err != nil {
		t.Fatal(err)
	}
	file.Provide(provided)
	run, err := replay.New(replay.Options{
		Policy: &file.Policy,
		Limiter: func(limits []fairshare.Limit) (fairshare.Limiter, error) {
			return memlimit.New(limits, memlimit.Options{Memory: 1 << 22})
		},
		Client: func(peer netip.Addr, _ string) (netip.Addr, bool, netip.Addr) {
			found := resolver.ResolveAddr(peer)
			return found.Addr, found.Proxy, found.Via
		},
		Bot:      bots.NewVerifier(bots.Options{}).Look,
		Attempts: file.UsesAttempts(),
		Browsers: file.UsesBrowsers() || file.UsesAttempts(),
		Logs:     []string{path},
		Verdicts: verdicts,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	report, err := run.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}
