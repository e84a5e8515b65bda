package policyfile

import (
	"slices"
	"strings"
	"testing"

	"fairshare"
)

func TestLimitByValueIsForProgramsOnly(t *testing.T) {
	f, err := Parse("jobs.yaml", []byte("rules:\n  - {name: jobs, limit: {requests: 5, per: 1m, by: value:user}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}}
	if by := f.Policy.Rules[0].Limit.By; !slices.Equal(by, want) {
		t.Errorf("by: %v, want %v", by, want)
	}
	if !slices.ContainsFunc(f.Warnings, func(w Warning) bool {
		return strings.Contains(w.Text, "only a Go program can give")
	}) {
		t.Errorf("warnings %v", f.Warnings)
	}
	_, err = Parse("share.yaml", []byte("upstream: http://127.0.0.1:8080\nshare: {capacity: 4, by: [value:user]}\n"))
	if err == nil || !strings.Contains(err.Error(), "by: value:user: only a Go program can give values") {
		t.Errorf("share by a value: %v", err)
	}
}
