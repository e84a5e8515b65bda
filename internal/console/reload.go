package console

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/policyfile"
)

// A Reload is what a new version of the policy file changes, or why it cannot be put in force. Rules are sentences.
// Nobody changes it: one that was asked for twice at the same time is one value.
type Reload struct {
	Policy  string       `json:"policy"`  // the file
	Applied bool         `json:"applied"` // it is in force now
	Faults  []string     `json:"faults"`  // why the old version stays in force; each may have several lines
	Plan    string       `json:"plan"`    // stands for all that is shown here; "" with faults
	Added   []string     `json:"added"`
	Removed []string     `json:"removed"`
	Changed []RuleChange `json:"changed"`
	Moved   bool         `json:"moved"` // rules of both versions have another order
	// Settings are other changes, one a line.
	Settings []string `json:"settings"`
	Restart  []string `json:"restart"`   // settings that change with a restart only
	FromZero []string `json:"from_zero"` // names of rules whose counters start from zero
	Bans     int64    `json:"bans"`      // bans of rules in force that stay
	// Suspended are bans in force of rules that are gone or ban no longer, one rule a line.
	Suspended []string `json:"suspended_bans"`
	Warnings  []string `json:"warnings"` // each may have several lines
}

// A RuleChange is a rule of both versions that differs. Was and Now may be equal: Keys says where it differs.
type RuleChange struct {
	Name string   `json:"name"`
	Was  string   `json:"was"`
	Now  string   `json:"now"`
	Keys []string `json:"keys"` // of the rule; none for a built-in rule
}

// A ReloadOrder asks for a reload. Plan is that of the Reload that an operator has seen.
type ReloadOrder struct {
	Plan string `json:"plan"`
}

// ErrChanged means that a reload would not change what its plan says.
var ErrChanged = errors.New("the policy file, or the policy in force, has changed since the plan was made")

// errNoReload means that the policy file is that of a program which loads it again itself.
var errNoReload = errors.New("this server does not load its policy again")

// Changes returns what a reload would change. It changes nothing.
func (c *Console) Changes(ctx context.Context) (*Reload, error) { return c.reload(ctx, "", false) }

// ReloadPolicy loads the policy file again if the result is what a plan says.
func (c *Console) ReloadPolicy(ctx context.Context, plan string) (*Reload, error) {
	if plan == "" {
		return nil, cli.WrongUsage(cli.Hint(errors.New("a reload needs its plan"),
			"the answer to changes has it: a reload does what an operator has seen, and nothing else"))
	}
	return c.reload(ctx, plan, true)
}

func (c *Console) reload(ctx context.Context, plan string, apply bool) (*Reload, error) {
	if c.Options.Reload == nil {
		return nil, errNoReload
	}
	r, err := c.Options.Reload(ctx, plan, apply)
	if errors.Is(err, ErrChanged) {
		return nil, cli.Hint(err, "fairshare reload shows what it would change now")
	}
	return r, err
}

// NewReload returns a Reload of a policy file without changes.
func NewReload(policy string) *Reload {
	return &Reload{Policy: policy, Faults: []string{}, Added: []string{}, Removed: []string{}, Changed: []RuleChange{},
		Settings: []string{}, Restart: []string{}, FromZero: []string{}, Suspended: []string{}, Warnings: []string{}}
}

// SetRules sets the fields about rules.
func (r *Reload) SetRules(c *policyfile.Changes) {
	r.Added, r.Removed, r.Moved = append(r.Added, c.Added...), append(r.Removed, c.Removed...), c.Moved
	for _, change := range c.Changed {
		r.Changed = append(r.Changed, RuleChange{Name: change.Name, Was: change.Was, Now: change.Now,
			Keys: append([]string{}, change.Keys...)})
	}
}

// IsSame reports whether nothing would change.
func (r *Reload) IsSame() bool {
	return len(r.Added)+len(r.Removed)+len(r.Changed)+len(r.Settings)+len(r.Restart) == 0 && !r.Moved
}

// mostLines is how many lines of one kind the lines of a Reload have.
const mostLines = 50

// RuleLines describes the changes of rules for people.
func (r *Reload) RuleLines() (lines []string) {
	list := func(sign string, texts []string) {
		for i, text := range texts {
			if i == mostLines {
				lines = append(lines, fmt.Sprintf("%sand %s more", sign, prose.Number(int64(len(texts)-i))))
				break
			}
			lines = append(lines, sign+text)
		}
	}
	list("+ ", r.Added)
	list("- ", r.Removed)
	var changed []string
	for i := range r.Changed {
		changed = append(changed, r.Changed[i].text())
	}
	list("~ ", changed)
	if r.Moved {
		lines = append(lines, "the order of the rules changes")
	}
	return lines
}

// Lines describes the changes for people, without faults and warnings.
func (r *Reload) Lines() (lines []string) {
	lines = append(r.RuleLines(), r.Settings...)
	if len(r.Restart) > 0 {
		lines = append(lines, "only after a restart: "+strings.Join(r.Restart, ", "))
	}
	if r.IsSame() {
		lines = append(lines, "no rule and no setting differs")
	}
	return append(lines, r.Counters()...)
}

// text returns a changed rule in one line.
func (c *RuleChange) text() string {
	if c.Was == c.Now {
		return fmt.Sprintf("%s (changed: %s)", c.Now, strings.Join(c.Keys, ", "))
	}
	return c.Now + " Before: " + c.Was
}

// Counters says what becomes of counters and bans.
func (r *Reload) Counters() (lines []string) {
	if len(r.FromZero) == 0 {
		lines = append(lines, "counters: all are kept")
	} else {
		names := r.FromZero
		if n := len(names) - mostLines; n > 0 {
			names = append(names[:mostLines:mostLines], fmt.Sprintf("and %d more", n))
		}
		lines = append(lines, "counters: these start from zero: "+strings.Join(names, ", ")+"; all others are kept")
	}
	if len(r.Suspended) == 0 {
		return append(lines, "bans: all are kept, "+prose.Number(r.Bans)+" in force")
	}
	return append(lines, fmt.Sprintf("bans: %s in force stay; these do not hold without their rule: %s", prose.Number(r.Bans),
		strings.Join(r.Suspended, ", ")))
}
