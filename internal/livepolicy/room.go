package livepolicy

import (
	"fmt"

	"fairshare/texts"
	"fairshare/waitingroom"
)

// room returns the waiting room of a runtime; nil if its policy has none. Machines
// that accept each other's cookies accept each other's challenges too.
func (p *Policy) room(rt *Runtime) *waitingroom.Room {
	if !rt.File.HasWaitingRoom() {
		return nil
	}
	opts := waitingroom.Options{}
	if rt.File.WaitingRoom != nil {
		opts = rt.File.WaitingRoom.Options
	}
	opts.Texts = p.texts(rt)
	opts.Key = p.state.referenceKey
	if len(rt.secrets) > 0 {
		opts.Key = rt.secrets[0]
	}
	room, err := waitingroom.New(opts)
	if err != nil { // policyfile has checked the options
		p.options.Log(fmt.Sprintf("error: there is no waiting room: %v", err))
		return nil
	}
	return room
}

// texts returns the texts of a runtime's answers in all languages.
func (p *Policy) texts(rt *Runtime) *texts.Set {
	set, err := texts.New(rt.File.Answers.Languages)
	if err != nil { // policyfile has checked the texts
		p.options.Log(fmt.Sprintf("error: answers have the built-in texts: %v", err))
		return texts.BuiltIn()
	}
	return set
}
