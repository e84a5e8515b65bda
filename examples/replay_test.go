package examples

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/replay"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// replayed runs the policy over the example's log, as fairshare replay does,
// and returns the verdicts.
func replayed(t *testing.T, name string, file *policyfile.File) string {
	t.Helper()
	resolver, err := clientaddr.New(clientaddr.Config{TrustedProxies: file.TrustedProxies, Header: file.Header})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(name, "access.log")
	var verdicts bytes.Buffer
	run, err := replay.New(replay.Options{
		Policy: &file.Policy,
		Limiter: func(limits []fairshare.Limit) (fairshare.Limiter, error) {
			return memlimit.New(limits, memlimit.Options{Memory: 1 << 20})
		},
		Client: func(peer netip.Addr, _ string) (netip.Addr, bool) {
			found := resolver.ResolveAddr(peer)
			return found.Addr, found.Proxy
		},
		Logs:     []string{path},
		Verdicts: &verdicts,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	report, err := run.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Skipped != 0 || report.Verdicts.Allow+report.Verdicts.Refuse+report.Verdicts.Block != report.Lines {
		t.Errorf("%s: %d lines, %d skipped, verdicts %+v", path, report.Lines, report.Skipped, report.Verdicts)
	}
	return strings.ReplaceAll(verdicts.String(), "\t"+filepath.Join(name, "access.log")+"\n", "\taccess.log\n")
}
