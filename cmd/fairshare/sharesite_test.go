package main

import (
	"context"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

// siteOf is the site of a policy.
func siteOf(t *testing.T, text string, old *site) *site {
	t.Helper()
	file, err := policyfile.Options{Bots: botNames}.Parse("/etc/site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	st, err := newSite(t.Context(), file, siteTerms{bans: fairshare.NewBans(0), log: func(string) {}, list: func(*policyfile.File, string) {}}, old)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.meter.end(nil) })
	return st
}

func TestShareIsAsThePolicySays(t *testing.T) {
	const rest = "\nupstream: http://127.0.0.1:3000\nrules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	o := shareOptions(siteOf(t, `
dry_run: true
clients: {ipv4_prefix: 25}
share: {capacity: auto, min: 4, max: 256, by: [addr, host], wait: 3s, queue: 7, known_after: 2m, weights: {labels: {partner: 4}, bots: {googlebot: 2}}}
`+rest, nil))
	by := []fairshare.KeyPart{{Kind: fairshare.ByAddr}, {Kind: fairshare.ByHost}}
	if o.Capacity != 0 || o.Min != 4 || o.Max != 256 || !slices.Equal(o.By, by) || o.Wait != 3*time.Second || o.Queue != 7 || o.KnownAfter != 2*time.Minute || !o.DryRun ||
		!maps.Equal(o.Labels, map[string]float64{"partner": 4}) || !maps.Equal(o.Bots, map[string]float64{"googlebot": 2}) {
		t.Errorf("%+v", o)
	}
	// Clients are told apart as limits do it.
	one, two := &fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1")}, &fairshare.Request{Addr: netip.MustParseAddr("192.0.2.2")}
	if a, b := o.Key(nil, one, by[0]), o.Key(nil, two, by[0]); string(a) != string(b) || o.Client(two.Addr) != netip.MustParsePrefix("192.0.2.0/25") {
		t.Errorf("keys %x, %x; client %v", a, b, o.Client(two.Addr))
	}

	for _, none := range []string{"share: {capacity: 8, wait: 0s}", "share: {capacity: 8, queue: 0}"} {
		if o := shareOptions(siteOf(t, none+rest, nil)); o.Capacity != 8 || o.Wait >= 0 || o.Queue >= 0 || o.DryRun {
			t.Errorf("%s: %+v", none, o)
		}
	}
}

// Who has a turn has it still when the share has changed, or has come back: two
// queues would let twice as many in.
func TestAServerHasOneShareForGood(t *testing.T) {
	const rest = "\nupstream: http://127.0.0.1:3000\nrules: [{limit: {requests: 1, per: 1m}, name: a}]\n"
	s := &server{memory: &memory{}}
	q := s.shareOf(siteOf(t, "share: 1"+rest, nil))
	claim := q.Claim(&fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1"), Time: time.Now()})
	if _, err := q.Wait(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	if s.shareOf(siteOf(t, rest, nil)) != nil {
		t.Error("without a share somebody waits")
	}
	if again := s.shareOf(siteOf(t, "share: 3"+rest, nil)); again != q || q.Stats().Capacity != 3 || q.Stats().Inside != 1 {
		t.Errorf("another queue, %+v", again.Stats())
	}
}

// Who was here before a restart is no newcomer after it.
func TestAShareIsToldWhoIsKnown(t *testing.T) {
	store, err := openLate(t.Context(), filepath.Join(t.TempDir(), registryName), sqlregistry.Options{}, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client, err := fairshare.ParseClientID("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := store.Write(t.Context(), sqlregistry.Batch{Clients: []sqlregistry.Dirty{{Client: client, FirstSeen: now.Add(-time.Hour), LastSeen: now}}}); err != nil {
		t.Fatal(err)
	}
	s := &server{memory: &memory{store: store}, ending: t.Context()}
	q := s.shareOf(siteOf(t, "share: 8\nupstream: http://127.0.0.1:3000\nrules: []\n", nil))
	s.meeting.Wait()
	for _, addr := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		claim := q.Claim(&fairshare.Request{Addr: netip.MustParseAddr(addr), Time: now})
		if _, err := q.Wait(t.Context(), &claim); err != nil {
			t.Fatal(err)
		}
	}
	if st := q.Stats(); st.Standing.Turns != 1 || st.Newcomers.Turns != 2 {
		t.Errorf("%d have standing, %d are newcomers", st.Standing.Turns, st.Newcomers.Turns)
	}
}

func TestMeterIsKeptWhileThePolicyAsksForTheSame(t *testing.T) {
	const rest = "\nrules: [{limit: {cpu: 7%, per: 15s}, name: a}]\n"
	process := siteOf(t, "upstream: {url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 2}}"+rest, nil)
	m := process.meter
	if m == nil {
		t.Skip("CPU time of processes is not measured here")
	}
	m.start()
	eventually(t, true, func() bool { return m.Stats().Samples > 0 })
	same := siteOf(t, "contact: us@example.org\nupstream: {url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 2}}"+rest, process)
	m.end(same.meter)
	same.meter.start()
	ended, end := context.WithCancel(t.Context())
	end()
	if same.meter != m || m.Run(ended) == nil { // an error says that it runs
		t.Error("the meter is another one, or was ended")
	}
	for what, upstream := range map[string]string{
		"port":   "{url: 'http://127.0.0.1:3001', cpu: {from: process, cores: 2}}",
		"cores":  "{url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 3}}",
		"scheme": "{url: 'https://127.0.0.1', cpu: {from: process, cores: 2}}",
	} {
		other := siteOf(t, "upstream: "+upstream+rest, same)
		if other.meter == m || other.meter == nil {
			t.Errorf("with another %s the meter is %v", what, other.meter)
		} else if what == "scheme" && other.meter.terms.listening != "127.0.0.1:443" {
			t.Errorf("what listens at %s is measured", other.meter.terms.listening)
		}
	}

	told := siteOf(t, "upstream: {url: 'http://127.0.0.1:3000', cpu: {from: server-timing, cores: 5}}"+rest, same)
	if told.meter.meters() != nil || metric(&told.file.UpstreamCPU) != "cpu" || metric(&same.file.UpstreamCPU) != "" || cores(told.file) != 5 {
		t.Errorf("%v, %q, %q, %v cores", told.meter.meters(), metric(&told.file.UpstreamCPU), metric(&same.file.UpstreamCPU), cores(told.file))
	}
}
