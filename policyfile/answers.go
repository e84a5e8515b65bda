package policyfile

import (
	"maps"
	"slices"
	"strings"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/texts"
)

// Answers sets the texts of the usual answers, and what clients get that no rule of the policy
// refuses. nil means the usual answer.
type Answers struct {
	OperatorBan *fairshare.Answer // clients that operators have banned
	Busy        *fairshare.Answer // clients without a turn at a busy upstream, and newcomers during an attack

	// Languages has own texts of all usual answers by language tag, for [texts.New].
	Languages map[string]texts.Texts
}

func answersKeys() []key[Answers] {
	return []key[Answers]{
		{"operator_ban", func(r *reader, n *node, a *Answers) { a.OperatorBan = r.answer(n) }},
		{"busy", func(r *reader, n *node, a *Answers) { a.Busy = r.answer(n) }},
		{"languages", func(r *reader, n *node, a *Answers) { a.Languages = r.languages(n) }},
	}
}

func readAnswers(r *reader, n *node, f *File) {
	const example = "{busy: {body_file: busy.html}}"
	if readMap(r, n, "answers", example, answersKeys(), &f.Answers) != nil && len(n.entries) == 0 {
		r.fault(n, "answers: "+example, "answers: the map is empty")
	}
}

// description describes the answers in a sentence; "" if all are usual.
func (a *Answers) description() string {
	var parts []string
	add := func(who string, answer *fairshare.Answer, usual string) {
		if answer != nil {
			parts = append(parts, who+" get "+answerText(&fairshare.Rule{Answer: answer}, usual))
		}
	}
	add("clients that operators have banned", a.OperatorBan, "403, or 429 until the ban ends")
	add("clients without a turn at a busy upstream", a.Busy, "503")
	if a.Languages != nil {
		parts = append(parts, "own texts: "+oneAnd(slices.Sorted(maps.Keys(a.Languages))))
	}
	if parts == nil {
		return ""
	}
	return strings.Join(parts, "; ") + "."
}

// ByRule returns the answers by the rule that they are for, as Options of package httpguard take them.
func (a *Answers) ByRule() map[*fairshare.Rule]*fairshare.Answer {
	all := map[*fairshare.Rule]*fairshare.Answer{}
	for rule, answer := range map[*fairshare.Rule]*fairshare.Answer{
		fairshare.OperatorBan: a.OperatorBan, fairshare.BusyUpstream: a.Busy, fairshare.AttackMode: a.Busy,
	} {
		if answer != nil {
			all[rule] = answer
		}
	}
	return all
}

// oneAnd lists texts, at most maxTexts.
func oneAnd(texts []string) string {
	if more := len(texts) - maxTexts; more > 0 {
		texts = append(texts[:maxTexts:maxTexts], others(more))
	}
	return prose.List(texts, "and")
}
