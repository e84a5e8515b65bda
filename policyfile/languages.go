package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairshare/internal/prose"
	"fairshare/texts"
	"fairshare/waitingroom"
)

const languagesExample = "languages: {it: {busy: Il sito è occupato}}"

func textKeys() []key[texts.Texts] {
	var keys []key[texts.Texts]
	for i, t := range new(texts.Texts).All() {
		keys = append(keys, key[texts.Texts]{t.Key, func(r *reader, n *node, into *texts.Texts) {
			*into.All()[i].Text = r.ownText(n, t.Key)
		}})
	}
	return keys
}

// languages reads texts by language.
func (r *reader) languages(n *node) map[string]texts.Texts {
	if n.kind != mapNode {
		r.fault(n, languagesExample, "languages: a map of languages and texts is needed, not %s", n.describe())
		return nil
	}
	if len(n.entries) == 0 {
		r.fault(n, languagesExample, "languages: the map is empty")
	}
	all, seen := map[string]texts.Texts{}, map[string]bool{}
	for i, e := range n.entries {
		tag := e.key.text
		lower := strings.ToLower(tag)
		switch {
		case i == texts.MaxLanguages:
			r.fault(e.key, "", "languages: more than %d languages", texts.MaxLanguages)
			return all
		case !texts.CheckLanguage(tag):
			hint := ""
			if fixed := strings.ReplaceAll(tag, "_", "-"); texts.CheckLanguage(fixed) {
				hint = fmt.Sprintf("did you mean %q?", fixed)
			}
			r.fault(e.key, hint, "languages: %s is not a language tag such as it or pt-BR", quote(tag))
			continue
		case seen[lower]:
			r.fault(e.key, "", "languages: %s is listed twice", quote(tag))
			continue
		}
		var own texts.Texts
		if got := readMap(r, e.value, tag, "{busy: …}", textKeys(), &own); got != nil && len(e.value.entries) == 0 {
			r.fault(e.value, "", "%s: the map is empty", tag)
		}
		all[tag], seen[lower] = own, true
	}
	return all
}

// ownText reads a text in an operator's words. It returns "" after a fault.
func (r *reader) ownText(n *node, what string) string {
	s, ok := r.text(n, what)
	if !ok {
		return ""
	}
	if err := texts.CheckText(what, s); err != nil {
		hint := ""
		for _, t := range texts.BuiltIn().Languages()[0].All() {
			if t.Key == what {
				hint = fmt.Sprintf("in English: %s: %q", what, *t.Text)
			}
		}
		r.fault(n, hint, "%s: %v", what, err)
		return ""
	}
	return s
}

// warnLanguages warns of texts that people get in English although the policy has their language.
func (r *reader) warnLanguages() {
	n := find(find(r.root, "answers"), "languages")
	step, room := waitingroom.NoStep, r.file.HasWaitingRoom()
	if r.file.WaitingRoom != nil {
		step = r.file.WaitingRoom.Step
	}
	builtIn := map[string]bool{}
	for _, l := range texts.BuiltIn().Languages() {
		builtIn[l.Tag] = true
	}
	for _, tag := range slices.Sorted(maps.Keys(r.file.Answers.Languages)) {
		if builtIn[strings.ToLower(tag)] {
			continue
		}
		own := r.file.Answers.Languages[tag]
		var missing []string
		for _, t := range own.All() {
			isButton := t.Key == "step" || t.Key == "button"
			switch {
			case *t.Text != "", t.Room && !room, isButton && step != waitingroom.Button,
				t.Key == "work" && step != waitingroom.ProofOfWork:
			default:
				missing = append(missing, t.Key)
			}
		}
		if missing != nil {
			r.warn(firstNode(find(n, tag), n), "", "%s: shown in English: %s", tag, prose.List(missing, "and"))
		}
	}
}
