package policyfile

import (
	"fmt"
	"slices"
	"time"

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
	}
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

// HasWaitingRoom reports whether people whose browser gets no turn get a page.
func (f *File) HasWaitingRoom() bool { return f.WaitingRoom == nil || !f.WaitingRoom.Off }

// warnWaitingRoom warns of settings without effect.
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
	return text
}
