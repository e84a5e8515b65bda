package redislimit

import (
	"strings"
	"testing"
	"time"
)

// Policies that differ for more than five minutes are reported, once.
func TestOtherPolicyIsReportedAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	var all []string
	c := &core{}
	c.events.report = func(e Event) {
		if e.Kind == OtherPolicy {
			all = append(all, e.Text)
		}
	}
	start := time.Unix(1_800_000_000, 0)
	for _, step := range []struct {
		at       time.Duration
		own      string // a new policy of this member, if not empty
		policies string // of the members alive
		want     int    // reports so far
	}{
		{0, "a", "a", 0},
		{time.Minute, "", "a a", 0},
		{2 * time.Minute, "", "a b", 0},
		{7 * time.Minute, "", "a b", 0}, // five minutes exactly
		{7*time.Minute + time.Second, "", "a b", 1},
		{8 * time.Minute, "", "a b", 1},
		{20 * time.Minute, "", "a b", 1},
		{21 * time.Minute, "", "a a", 1},
		{22 * time.Minute, "", "a b", 1}, // begins again
		{26 * time.Minute, "", "a a", 1},
		{27 * time.Minute, "", "a b", 1},
		{31 * time.Minute, "", "a b", 1},
		{31 * time.Minute, "c", "c b", 1}, // a reload begins again, too
		{36 * time.Minute, "", "c b", 1},
		{36*time.Minute + time.Second, "", "c b", 2},
		{37 * time.Minute, "", "c -", 2}, // a member that does not name its policy
		{60 * time.Minute, "", "c -", 2},
	} {
		if step.own != "" {
			c.group.setPolicy(step.own)
		}
		var members []Member
		for i, policy := range strings.Fields(step.policies) {
			members = append(members, Member{ID: string(rune('1' + i)), Name: "member\n" + policy,
				Policy: strings.Trim(policy, "-")})
		}
		if c.note(members, start.Add(step.at)); len(all) != step.want {
			t.Errorf("after %v with policies %s: %d reports, want %d", step.at, step.policies, len(all), step.want)
		}
	}
	if len(all) > 0 && (!strings.Contains(all[0], "b has had another policy") || strings.Contains(all[0], "\n")) {
		t.Errorf("the report is %q", all[0])
	}
}
