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
)

// storyWait is how long a reference that is not there is waited for: a server
// writes new stories within 200 ms.
const storyWait = 1500 * time.Millisecond

// Where a server runs, one who was refused just now has a new story soon: who
// asks with the address gets no older one alone.
const (
	newStoryWait = 400 * time.Millisecond
	newStory     = 5 * time.Second // at this age it is not waited for another
)

// fewStories of one client are told whole.
const fewStories = 5

// Why shows the refusals that a reference or a client leads to, and how to let
// the client in.
func Why(env *cli.Environment, state, what string, json bool) error {
	ref := reference(what)
	_, notClient := parseClient(what)
	if notClient != nil && ref == "" {
		if looksLikeAddress(what) {
			return notClient
		}
		return notAReference(what)
	}
	o, err := openToRead(env, state)
	if err != nil {
		return err
	}
	defer o.close()
	var id named
	if notClient == nil {
		if id, err = o.client(what); err != nil {
			return err
		}
	}
	if ref != "" && (notClient != nil || id.Bot != "") {
		wait := storyWait
		if notClient == nil && id.err == nil {
			wait = 0 // it may as well be the name of a bot
		}
		stories, err := o.await(wait, func() ([]fairshare.Story, bool, error) {
			stories, err := o.Story(o.Context, ref)
			return stories, len(stories) > 0, err
		})
		if err != nil {
			return err
		}
		if len(stories) > 0 {
			return o.tell(stories, json)
		}
		if wait > 0 {
			return o.unknownReference(what, ref)
		}
	}
	if notClient != nil || id.err != nil {
		return notAReference(what)
	}
	stories, err := o.stories(id.ClientID)
	if err != nil {
		return err
	}
	if len(stories) == 0 {
		return o.noStory(id, json)
	}
	return o.tell(stories, json)
}

// notAReference says that an argument of why cannot be read as anything.
func notAReference(typed string) error {
	return cli.WrongUsage(cli.Hint(
		fmt.Errorf("%q is not a reference, an address or a bot", typed),
		"a reference is ten letters and digits, such as 7k3m9x2abc, at the end of the page that the client saw"))

}

// unknownReference says that no story has the reference that was typed. It
// names what was typed, and what that was read as where that is different.
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

// otherFolder says how to look into another state folder; it ends a hint.
func (o *operation) otherFolder() string {
	return "; if serve uses a folder other than " + o.dir + ", name that: --state DIR"
}

// reference reads a reference of httpguard: ten characters of Crockford's
// base32, in which letters that look like a digit mean it; also out of the whole
// that a client was shown. It returns "" for what is none.
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

// stories returns those of a client, the latest first.
func (o *operation) stories(id fairshare.ClientID) ([]fairshare.Story, error) {
	wait := time.Duration(0)
	if lockfile.Held(filepath.Join(o.dir, setup.ServeLock)) {
		wait = newStoryWait
	}
	return o.await(wait, func() ([]fairshare.Story, bool, error) {
		stories, err := o.Stories(o.Context, id, 0)
		return stories, len(stories) > 0 && o.now.Sub(stories[0].Last) < newStory, err
	})
}

// await reads stories until they are enough, or for so long.
func (o *operation) await(wait time.Duration, read func() (stories []fairshare.Story, enough bool, err error)) (
	[]fairshare.Story, error) {
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
			wait = 0 // once more
		case <-o.Context.Done():
			return nil, cli.ErrReported
		}
	}
}

// noStory tells of a client that no rule refused.
func (o *operation) noStory(id named, json bool) error {
	near, err := o.near(id.ClientID)
	if err != nil {
		return err
	}
	word := near.speaks()
	if word == nil {
		return cli.Hint(
			fmt.Errorf("no refusal of %s is recorded in %s", id, o.dir),
			o.command("client "+id.word)+" shows what is known of it"+o.otherFolder())
	}
	if json {
		return writeJSON(o.Stdout, jsonWord(word))
	}
	o.Printf("%s: %s is %s, by an operator", id, word.Client, o.word(word))
	switch {
	case word.Action == fairshare.Allow:
	case o.settings.DryRun:
		o.tellDryRun()
	case word.Client == id.ClientID:
		o.Printf("to let it in: %s", o.command("unban "+id.word))
	default: // the others within stay banned
		o.Printf("to let it in: %s", o.command("allow "+id.word+" --for 7d"))
	}
	return nil
}
