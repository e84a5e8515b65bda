package examples

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairshare"
	"fairshare/policyfile"
)

func load(t *testing.T, name string) *policyfile.File {
	t.Helper()
	file, err := policyfile.Load(filepath.Join(name, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Seven percent of four cores over 15 seconds is 4.2 s on every machine: for each address,
// and for all addresses of a verified crawler together.
func TestSevenPercentOfFourCores(t *testing.T) {
	file := load(t, "seven-percent")
	if cpu := file.UpstreamCPU; cpu.From != "server-timing" || cpu.Cores != 4 {
		t.Errorf("the source of CPU time is %+v", cpu)
	}
	var got []fairshare.Limit
	for _, r := range file.Policy.Rules {
		if r.Limit != nil {
			got = append(got, *r.Limit)
			if r.Answer == nil || r.Answer.Status != 503 || r.Answer.RetryAfter < 0 {
				t.Errorf("%s: answer %+v, want 503 and Retry-After", r.Name, r.Answer)
			}
		}
	}
	want := []fairshare.Limit{
		{Resource: fairshare.CPU, N: 4_200_000, Window: 15 * time.Second,
			By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}},
		{Resource: fairshare.CPU, N: 4_200_000, Window: 15 * time.Second,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

// The policy has the properties that the page describes.
func TestFairSharePolicy(t *testing.T) {
	s := load(t, "fair-share").Share
	if s == nil {
		t.Fatal("the policy shares nothing")
	}
	if s.Capacity != 2 || s.Queue != 6 || s.Wait != 10*time.Second || !s.Ages {
		t.Errorf("share %+v", s)
	}
	if want := []fairshare.KeyPart{{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr}}; !slices.Equal(s.By, want) {
		t.Errorf("by %v, want %v", s.By, want)
	}
	if diff := cmp.Diff([]map[string]float64{{"partner": 4}, {"search": 2, "ai": 0.5}},
		[]map[string]float64{s.Labels, s.Bots}); diff != "" {
		t.Errorf("weights of labels and bots (-want +got):\n%s", diff)
	}
}
