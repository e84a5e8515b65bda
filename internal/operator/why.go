package operator

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"fairshare"
	"fairshare/internal/cli"
	"fairshare/internal/lockfile"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
	"fairshare/registry"
)

// storyWait is how long the command waits for the story of an unknown reference:
// a server writes new stories within 200 ms.
const storyWait = 1500 * time.Millisecond

// While a server runs, the story of a refusal a moment ago is not yet written.
// The command waits for it unless the latest story is itself new.
const (
	newStoryWait = 400 * time.Millisecond
	newStory     = 5 * time.Second // the greatest age of a new story
)

// mostStoriesPrinted bounds how many stories of one client are printed.
const mostStoriesPrinted = 5

// Why shows the refusals that a reference or a client leads to, and how to let
// the client in.
func Why(env *cli.Environment, state, argument string, json bool) error {
	ref := reference(argument)
	_, notClient := parseClient(argument)
	if notClient != nil && ref == "" {
		if LooksLikeAddress(argument) {
			return notClient
		}
		return wrongReference(argument)
	}
	o, err := openToRead(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	var id named
	if notClient == nil {
		if id, err = o.client(argument); err != nil {
			return err
		}
	}
	if ref != "" && (notClient != nil || id.Bot != "") {
		wait := storyWait
		if notClient == nil && id.err == nil {
			wait = 0 // it may also be the name of a bot
		}
		stories, err := o.await(wait, func() ([]registry.Story, bool, error) {
			stories, err := o.Story(o.Context, ref)
			return stories, len(stories) > 0, err
		})
		if err != nil {
			return err
		}
		if len(stories) > 0 {
			return o.printStories(stories, json)
		}
		if wait > 0 {
			return o.unknownReference(argument, ref)
		}
	}
	if notClient != nil || id.err != nil {
		return wrongReference(argument)
	}
	stories, err := o.stories(id.ClientID)
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return o.printWithoutStory(id, json)
	}
	return o.printStories(stories, json)
}

// wrongReference returns the error for an argument that is neither a reference
// nor a client.
func wrongReference(typed string) error {
	return cli.WrongUsage(cli.Hint(
		fmt.Errorf("%q is not a reference, an address or a bot", typed),
		"a reference is ten letters and digits, such as 7k3m9x2abc, at the end of the page that the client saw"))

}

// unknownReference returns the error for a reference that no story has. It names
// the argument and, if that is different, the reference that was looked for.
func (o *operation) unknownReference(typed, ref string) error {
	what := fmt.Sprintf("%q", prose.Printable(typed))
	if !strings.EqualFold(typed, ref) {
		what += fmt.Sprintf(" (read as %s: o is 0, i and l are 1)", ref)
	}
	return cli.Hint(
		fmt.Errorf("no refusal in %s has the reference %s", o.dir, what),
		"check the ten letters and digits, or try the address: "+o.command("why 203.0.113.9")+
			"; refusals are kept for 90 days (registry: {age} in the policy), and in a flood not all of them are recorded"+o.otherFolder())

}

// otherFolder returns how to use another state folder, as the end of a hint.
func (o *operation) otherFolder() string {
	return "; if serve uses a folder other than " + o.dir + ", name that: --state DIR"
}

// reference reads a reference of httpguard: ten characters of Crockford's
// base32. Letters that look like a digit stand for it. The text may be the whole
// line that the client saw. If it has no reference, the result is "".
func reference(s string) string {
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	s = strings.TrimFunc(strings.ToLower(s), between)
	if at := strings.LastIndex(s, "reference"); at >= 0 {
		if words := strings.FieldsFunc(s[at+len("reference"):], between); len(words) > 0 {
			s = words[0]
		}
	}
	s = strings.NewReplacer("o", "0", "i", "1", "l", "1", "-", "", " ", "").Replace(s)
	if len(s) != 10 || strings.Trim(s, "0123456789abcdefghjkmnpqrstvwxyz") != "" {
		return ""
	}
	return s
}

// stories returns the stories of a client, the latest first.
func (o *operation) stories(id fairshare.ClientID) ([]registry.Story, error) {
	wait := time.Duration(0)
	if lockfile.Held(filepath.Join(o.dir, setup.ServeLock)) {
		wait = newStoryWait
	}
	return o.await(wait, func() ([]registry.Story, bool, error) {
		stories, err := o.Stories(o.Context, id, 0)
		return stories, len(stories) > 0 && o.now.Sub(stories[0].Last) < newStory, err
	})
}

// await reads stories again and again until there are enough, or wait is over.
func (o *operation) await(wait time.Duration, read func() (stories []registry.Story, enough bool, err error)) (
	[]registry.Story, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.After(wait)
	for {
		stories, enough, err := read()
		if err != nil || enough || wait == 0 {
			return stories, o.failed(err)
		}
		select {
		case <-tick.C:
		case <-end:
			wait = 0 // read a last time
		case <-o.Context.Done():
			return nil, cli.ErrReported
		}
	}
}

// printWithoutStory prints the override of a client that has no story.
func (o *operation) printWithoutStory(id named, json bool) error {
	near, err := o.overridesNear(id.ClientID)
	if err != nil {
		return err
	}
	override := near.effective()
	if override == nil {
		return cli.Hint(
			fmt.Errorf("no refusal of %s is recorded in %s", id, o.dir),
			o.command("client "+id.argument)+" shows what is known of it"+o.otherFolder())
	}
	if json {
		return writeJSON(o.Stdout, jsonOverride(override))
	}
	o.Printf("%s: %s is %s, by an operator", id, override.Client, o.overrideText(override))
	switch {
	case override.Action == fairshare.Allow:
	case o.settings.DryRun:
		o.printDryRun()
	case override.Client == id.ClientID:
		o.Printf("to let it in: %s", o.command("unban "+id.argument))
	default: // the other clients within the prefix stay banned
		o.Printf("to let it in: %s", o.command("allow "+id.argument+" --for 7d"))
	}
	return nil
}
