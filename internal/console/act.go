package console

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

// An Action is what an operator does about a client. Its fields are those of the commands.
type Action struct {
	Do     string  `json:"do"`          // one of Actions
	Client string  `json:"client"`      // an address, a prefix or the name of a bot
	For    float64 `json:"for_seconds"` // of ban and allow; 0: without an end
	Reason string  `json:"reason"`      // of ban and allow
	Label  string  `json:"label"`       // of label and unlabel
	Note   string  `json:"note"`        // of note; "" removes it
	Force  bool    `json:"force"`       // even what is probably a mistake: everybody, a proxy in front
}

// Actions are what Act can do.
var Actions = []string{"reset", "ban", "unban", "allow", "unallow", "label", "unlabel", "note", "forget"}

// longest is the longest time of a ban or allow, in seconds: a hundred years.
const longest = 100 * 365 * 24 * 3600

// Act does what the command of that name does, in the server's registry. The server follows within a
// second. Errors have hints; those of kind [cli.UsageError] are about the action.
func (c *Console) Act(ctx context.Context, a Action) (*Result, error) {
	folder := c.Policy.Folder()
	if folder == "" || !c.Policy.HasRegistry() {
		return nil, cli.Hint(ErrNoRegistry,
			"start serve without --registry none, and with a state folder: --state DIR")
	}
	if !slices.Contains(Actions, a.Do) {
		return nil, wrong("do", a.Do, Actions)
	}
	if a.For != 0 && !(a.For >= 1 && a.For <= longest) {
		return nil, cli.WrongUsage(fmt.Errorf("for_seconds: %v is neither 0 nor between 1 and %d", a.For, longest))
	}
	for _, text := range []struct{ name, text string }{{"reason", a.Reason}, {"note", a.Note}} {
		if err := operator.CheckText(text.name, text.text); err != nil {
			return nil, cli.WrongUsage(err)
		}
	}
	label := ""
	if a.Do == "label" || a.Do == "unlabel" && a.Label != "" {
		var err error
		if label, err = operator.ParseLabel(a.Label); err != nil {
			return nil, cli.WrongUsage(err)
		}
	}
	length := time.Duration(a.For * float64(time.Second))
	var out, messages bytes.Buffer
	env := &cli.Environment{Context: ctx, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages}
	var err error
	switch a.Do {
	case "reset":
		err = operator.Reset(env, folder, []string{a.Client}, a.Force)
	case "ban":
		err = operator.Ban(env, folder, operator.BanOptions{Client: a.Client, For: length, Reason: a.Reason,
			Force: a.Force})
	case "unban":
		err = operator.Unban(env, folder, a.Client)
	case "allow":
		err = operator.Allow(env, folder, operator.AllowOptions{Client: a.Client, For: length, Reason: a.Reason,
			Force: a.Force})
	case "unallow":
		err = operator.Unallow(env, folder, a.Client)
	case "label":
		err = operator.Label(env, folder, a.Client, label)
	case "unlabel":
		err = operator.Unlabel(env, folder, a.Client, label)
	case "note":
		err = operator.Note(env, folder, a.Client, a.Note)
	case "forget":
		err = operator.Forget(env, folder, a.Client, a.Force)
	}
	if err != nil {
		return nil, err
	}
	r := &Result{Lines: []string{}}
	for line := range strings.Lines(out.String() + messages.String()) {
		r.Lines = append(r.Lines, strings.TrimRight(line, "\n"))
	}
	return r, nil
}
