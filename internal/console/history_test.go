package console_test

import (
	"errors"
	"testing"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/traffic"
)

func TestHistory(t *testing.T) {
	s := open(t)
	for range 12 {
		s.get("203.0.113.9", "/", firefox)
	}
	s.get("203.0.113.9", "/few", firefox) // refused, too
	// No period has ended: only the latest refusals are known.
	h, err := s.History("client", "203.0.113.9", "1h")
	if err != nil || h.Source != "journal" || h.Since != nil || len(h.Points) == 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	var sum int64
	for _, p := range h.Points {
		sum += p.Refused
	}
	if sum != 3 {
		t.Errorf("%d refusals, want 3", sum)
	}
	now := s.Policy.Now().Add(20 * time.Second)
	s.Policy.FlushReports()
	s.Traffic.Tick(now, s.Policy.Wall(now), traffic.Load{})
	for _, by := range []string{"client", "network"} {
		key := map[string]string{"client": "203.0.113.9", "network": "203.0.113.0/24"}[by]
		for span, step := range map[string]int{"1h": 60, "2d": 3600} {
			h, err := s.History(by, key, span)
			if err != nil || h.Source != "counts" || h.Since == nil || h.Step != step || h.Key != key ||
				len(h.Points) != 1 || h.Points[0].Requests != 13 || h.Points[0].Refused != 3 || h.Points[0].More != 0 {
				t.Errorf("%s %s: %+v, %v", key, span, h, err)
			}
		}
	}
	if h, err := s.History("client", "curl", "1h"); err != nil || h.By != "bot" {
		t.Errorf("a bot: %+v, %v", h, err)
	}
	for _, wrong := range [][3]string{{"path", "/", "1h"}, {"client", "203.0.113.9", "1y"},
		{"client", "300.1.1.1", "1h"}, {"owner", "x", "1h"}, {"owner", "0", "1h"}, {"owner", "AS99999999999", "1h"}} {
		var usage *cli.UsageError
		if _, err := s.History(wrong[0], wrong[1], wrong[2]); !errors.As(err, &usage) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
