package serve

import (
	"context"
	"io"
	"testing"
	"time"

	"fairshare/internal/setup"
	"fairshare/policyfile"
)

func TestReloadKeepsTheMeterWithTheSameSettings(t *testing.T) {
	const rest = "\nrules: [{limit: {cpu: 7%, per: 15s}, name: a}]\n"
	s, process := open(t, "upstream: {url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 2}}"+rest)
	m := process.meter
	if m == nil {
		t.Skip("CPU time of processes is not measured here")
	}
	m.start()
	for m.Stats().Samples == 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond) // the first sample is taken at once
	}
	s.runtime.Store(process)
	same := next(t, s,
		"contact: us@example.org\nupstream: {url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 2}}"+rest)
	m.end(same.meter)
	same.meter.start()
	ended, end := context.WithCancel(t.Context())
	end()
	if same.meter != m || m.Run(ended) == nil { // an error says that it runs
		t.Error("the meter is another one, or was ended")
	}
	s.runtime.Store(same)
	for what, upstream := range map[string]string{
		"port":   "{url: 'http://127.0.0.1:3001', cpu: {from: process, cores: 2}}",
		"cores":  "{url: 'http://127.0.0.1:3000', cpu: {from: process, cores: 3}}",
		"scheme": "{url: 'https://127.0.0.1', cpu: {from: process, cores: 2}}",
	} {
		other := next(t, s, "upstream: "+upstream+rest)
		if other.meter == m || other.meter == nil {
			t.Errorf("with another %s the meter is %v", what, other.meter)
		} else if what == "scheme" && other.meter.settings.listening != "127.0.0.1:443" {
			t.Errorf("what listens at %s is measured", other.meter.settings.listening)
		}
	}

	reported := next(t, s, "upstream: {url: 'http://127.0.0.1:3000', cpu: {from: server-timing, cores: 5}}"+rest)
	if reported.meter.asMeter() != nil || metric(&reported.File.UpstreamCPU) != "cpu" ||
		metric(&same.File.UpstreamCPU) != "" || cores(reported.File) != 5 {
		t.Errorf("%v, %q, %q, %v cores", reported.meter.asMeter(), metric(&reported.File.UpstreamCPU),
			metric(&same.File.UpstreamCPU), cores(reported.File))
	}
}

func parseFile(t *testing.T, text string) *policyfile.File {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// open returns a server that has opened its policy and does not listen.
func open(t *testing.T, text string) (*server, *runtime) {
	t.Helper()
	s := &server{options: Options{State: t.TempDir(), Now: time.Now, Stderr: io.Discard}}
	rt, err := s.openPolicy(t.Context(), parseFile(t, text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		rt.meter.end(nil)
		s.policy.Close()
	})
	return s, rt
}

// next returns what a reload of a server would use.
func next(t *testing.T, s *server, text string) *runtime {
	t.Helper()
	rt, err := s.newRuntime(t.Context(), parseFile(t, text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		rt.meter.end(nil)
		s.policy.Discard(rt.Runtime)
	})
	return rt
}
