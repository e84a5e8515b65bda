package amount

import (
	"testing"
	"time"

	"fairshare"
)

func TestAllowance(t *testing.T) {
	for want, limit := range map[string]fairshare.Limit{
		"1.05 s of CPU in 15s, by addr": {N: 1_050_000, Resource: fairshare.CPU, Window: 15 * time.Second},
		"4 requests in progress, by network": {N: 4, Resource: fairshare.Concurrent,
			By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}},
	} {
		if got := Allowance(&limit); got != want {
			t.Errorf("Allowance = %q, want %q", got, want)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		resource string
		n        int64
		want     string
	}{
		{"requests", 1, "1 request"},
		{"requests", 1200, "1,200 requests"},
		{"time", 1500, "0.0015 s of the site's time"},
		{"bytes", 12_300_000, "12.3 MB"},
		{"cost", 1, "1 unit of cost"},
		{"concurrent", 2, "2 requests in progress"},
		{"errors", 3, "3 errors"},
	} {
		if got := Of(c.resource, c.n); got != c.want {
			t.Errorf("Of(%q, %d) = %q, want %q", c.resource, c.n, got, c.want)
		}
	}
}
