package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairshare/internal/prose"
	"fairshare/waitingroom"
)

// A WaitingRoom sets the page for people whose browser gets no turn at a busy
// upstream. The zero WaitingRoom is the default.
type WaitingRoom struct {
	Off bool // such requests are refused like all others
	waitingroom.Options
}

// maxRoomAfter is the longest wait of a browser before it gets the page.
const maxRoomAfter = time.Minute

const roomExample = "{step: button}"

func roomKeys() []key[WaitingRoom] {
	return []key[WaitingRoom]{
		{"after", func(r *reader, n *node, w *WaitingRoom) {
			if w.After = r.duration(n, "after", 0, maxRoomAfter); w.After == 0 {
				w.After = -1
			}
		}},
		{"step", func(r *reader, n *node, w *WaitingRoom) { w.Step = r.step(n) }},
		{"difficulty", func(r *reader, n *node, w *WaitingRoom) {
			w.Difficulty = int(r.integer(n, "difficulty", waitingroom.MinDifficulty, waitingroom.MaxDifficulty))
		}},
		{"languages", func(r *reader, n *node, w *WaitingRoom) { w.Languages = r.languages(n) }},
	}
}

func textKeys() []key[waitingroom.Texts] {
	var keys []key[waitingroom.Texts]
	for i, t := range new(waitingroom.Texts).All() {
		keys = append(keys, key[waitingroom.Texts]{t.Key, func(r *reader, n *node, texts *waitingroom.Texts) {
			*texts.All()[i].Text = r.roomText(n, t.Key)
		}})
	}
	return keys
}

func readWaitingRoom(r *reader, n *node, f *File) {
	f.WaitingRoom = new(WaitingRoom)
	if n.kind == scalarNode {
		f.WaitingRoom.Off = !r.boolean(n, "waiting_room")
		return
	}
	got := readMap(r, n, "waiting_room", roomExample, roomKeys(), f.WaitingRoom)
	switch {
	case got == nil:
	case len(n.entries) == 0:
		r.fault(n, "waiting_room: "+roomExample, "waiting_room: the map is empty")
	case got.has("difficulty") && f.WaitingRoom.Step != waitingroom.ProofOfWork:
		r.fault(got.at("difficulty"), "step: proof_of_work", "difficulty belongs to step: proof_of_work")
	}
}

var roomSteps = []waitingroom.Step{waitingroom.NoStep, waitingroom.Button, waitingroom.ProofOfWork}

func (r *reader) step(n *node) waitingroom.Step {
	var words []string
	for _, step := range roomSteps {
		words = append(words, step.String())
	}
	word := r.choice(n, "step", words, map[string]string{"false": "none", "off": "none", "true": "button",
		"on": "button", "click": "button", "pow": "proof_of_work", "work": "proof_of_work",
		"challenge": "proof_of_work", "captcha": "button"})
	return roomSteps[max(slices.Index(words, word), 0)]
}

// languages reads the texts of the waiting room by language.
func (r *reader) languages(n *node) map[string]waitingroom.Texts {
	const example = "{it: {title: Il sito è occupato}}"
	if n.kind != mapNode {
		r.fault(n, "languages: "+example, "languages: a map of languages and texts is needed, not %s", n.describe())
		return nil
	}
	if len(n.entries) == 0 {
		r.fault(n, "languages: "+example, "languages: the map is empty")
	}
	all, seen := map[string]waitingroom.Texts{}, map[string]bool{}
	for i, e := range n.entries {
		tag := e.key.text
		lower := strings.ToLower(tag)
		switch {
		case i == waitingroom.MaxLanguages:
			r.fault(e.key, "", "languages: more than %d languages", waitingroom.MaxLanguages)
			return all
		case !waitingroom.CheckLanguage(tag):
			hint := ""
			if fixed := strings.ReplaceAll(tag, "_", "-"); waitingroom.CheckLanguage(fixed) {
				hint = fmt.Sprintf("did you mean %q?", fixed)
			}
			r.fault(e.key, hint, "languages: %s is not a language tag such as it or pt-BR", quote(tag))
			continue
		case seen[lower]:
			r.fault(e.key, "", "languages: %s is listed twice", quote(tag))
			continue
		}
		var texts waitingroom.Texts
		if got := readMap(r, e.value, tag, "{title: …}", textKeys(), &texts); got != nil && len(e.value.entries) == 0 {
			r.fault(e.value, "", "%s: the map is empty", tag)
		}
		all[tag], seen[lower] = texts, true
	}
	return all
}

// roomText reads a text of the waiting room. It returns "" after a fault.
func (r *reader) roomText(n *node, what string) string {
	s, ok := r.text(n, what)
	if !ok {
		return ""
	}
	if err := waitingroom.CheckText(what, s); err != nil {
		english := waitingroom.BuiltIn()[waitingroom.English]
		hint := ""
		for _, t := range english.All() {
			if t.Key == what {
				hint = fmt.Sprintf("in English: %s: %q", what, *t.Text)
			}
		}
		r.fault(n, hint, "%s: %v", what, err)
		return ""
	}
	return s
}

// HasWaitingRoom reports whether people whose browser gets no turn get a page.
func (f *File) HasWaitingRoom() bool { return f.WaitingRoom == nil || !f.WaitingRoom.Off }

// warnWaitingRoom warns of settings without effect, and of languages without texts
// that a person needs.
func (r *reader) warnWaitingRoom() {
	n, w := find(r.root, "waiting_room"), r.file.WaitingRoom
	if w == nil || w.Off {
		return
	}
	if s := r.file.Share; s != nil && w.After > s.Wait {
		r.warn(firstNode(find(n, "after"), n), "", "after: no request waits longer than the %s of share",
			FormatDuration(s.Wait))
	}
	if v := r.file.Visitors; v != nil && v.Cookies == CookiesNever && w.Step != waitingroom.NoStep {
		r.warn(firstNode(find(n, "step"), n), "", "step: %s has no effect with visitors: never", w.Step)
	}
	builtIn := waitingroom.BuiltIn()
	for _, tag := range slices.Sorted(maps.Keys(w.Languages)) {
		texts := w.Languages[tag]
		if _, known := builtIn[strings.ToLower(tag)]; known {
			continue
		}
		var missing []string
		for _, t := range texts.All() {
			isStep := t.Key == "step" || t.Key == "button"
			switch {
			case *t.Text != "", isStep && w.Step != waitingroom.Button,
				t.Key == "work" && w.Step != waitingroom.ProofOfWork:
			default:
				missing = append(missing, t.Key)
			}
		}
		if missing != nil {
			r.warn(firstNode(find(find(n, "languages"), tag), n), "", "%s: shown in English: %s", tag,
				prose.List(missing, "and"))
		}
	}
}

// description describes who gets the page, and what it has.
func (w *WaitingRoom) description() string {
	if w.Off {
		return "off: people whose browser gets no turn get the same 503 as programs."
	}
	after := "at once"
	switch {
	case w.After == 0:
		after = "after " + FormatDuration(waitingroom.DefaultAfter)
	case w.After > 0:
		after = "after " + FormatDuration(w.After)
	}
	text := "a person's browser that gets no turn gets a page " + after + " that reloads itself, with 503."
	switch w.Step {
	case waitingroom.Button:
		text += " A visitor that presses its button counts as known for 10s."
	case waitingroom.ProofOfWork:
		difficulty := w.Difficulty
		if difficulty == 0 {
			difficulty = waitingroom.DefaultDifficulty
		}
		text += fmt.Sprintf(" A visitor whose browser finds a SHA-256 with %d zero bits counts as known for 1m.", difficulty)
	}
	if w.Languages != nil {
		text += " Own texts: " + oneAnd(slices.Sorted(maps.Keys(w.Languages))) + "."
	}
	return text
}

// oneAnd lists texts, at most maxTexts.
func oneAnd(texts []string) string {
	if more := len(texts) - maxTexts; more > 0 {
		texts = append(texts[:maxTexts:maxTexts], others(more))
	}
	return prose.List(texts, "and")
}
