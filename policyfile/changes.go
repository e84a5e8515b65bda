package policyfile

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
)

// Changes says how one version of a policy file differs from another.
type Changes struct {
	Added, Removed []string // a sentence for each rule
	Changed        []RuleChange
	// Moved reports whether rules of both versions have another order.
	Moved bool
	// Settings are the keys at the top of the file whose values differ, and files that it names, by name.
	Settings []string
}

// A RuleChange is a rule that differs. Was and Now are its sentences; they may be equal. Keys are the keys
// of the rule whose values differ; none for a built-in rule.
type RuleChange struct {
	Name, Was, Now string
	Keys           []string
}

// Empty reports whether there is no difference.
func (c *Changes) Empty() bool {
	return len(c.Added)+len(c.Removed)+len(c.Changed)+len(c.Settings) == 0 && !c.Moved
}

// A part is a part of a file, with a sum of its content: not the content, which may be a secret.
type part struct {
	name string
	sum  uint64
}

// Changes returns how next differs from f. Rules with the same name are the same rule. What the
// command line has changed in a File is compared only in sentences of rules.
func (f *File) Changes(next *File) Changes {
	var c Changes
	before := map[string]int{}
	for i := range f.Policy.Rules {
		before[f.Policy.Rules[i].Name] = i
	}
	latest := -1 // the last rule of f that is in next too
	kept := map[string]bool{}
	for i := range next.Policy.Rules {
		rule := &next.Policy.Rules[i]
		now := next.Sentence(rule)
		was, known := before[rule.Name]
		if !known {
			c.Added = append(c.Added, now)
			continue
		}
		kept[rule.Name] = true
		c.Moved, latest = c.Moved || was < latest, max(was, latest)
		change := RuleChange{Name: rule.Name, Was: f.Sentence(&f.Policy.Rules[was]), Now: now,
			Keys: differences(f.ruleParts(was), next.ruleParts(i))}
		if len(change.Keys) > 0 || change.Was != now {
			c.Changed = append(c.Changed, change)
		}
	}
	for i := range f.Policy.Rules {
		if rule := &f.Policy.Rules[i]; !kept[rule.Name] {
			c.Removed = append(c.Removed, f.Sentence(rule))
		}
	}
	c.Settings = differences(f.parts, next.parts)
	return c
}

// ruleParts returns the parts of a rule; none for a built-in one.
func (f *File) ruleParts(i int) []part {
	if i < len(f.rulesParts) {
		return f.rulesParts[i]
	}
	return nil
}

// differences returns the names of parts that differ, in the order of now; those that are gone follow.
func differences(was, now []part) (names []string) {
	sum := func(parts []part, name string) (uint64, bool) {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return 0, false
		}
		return parts[i].sum, true
	}
	for _, p := range now {
		if old, found := sum(was, p.name); !found || old != p.sum {
			names = append(names, p.name)
		}
	}
	for _, p := range was {
		if _, found := sum(now, p.name); !found {
			names = append(names, p.name)
		}
	}
	return names
}

// noteParts keeps the sums of all parts of the file for Changes.
func (r *reader) noteParts() {
	for _, e := range r.root.entries {
		switch e.key.text {
		case "rules", "tests": // each rule is a part, and a test changes nothing
		case "sites": // without their rules
			r.file.parts = append(r.file.parts, part{"sites", sumOf(e.value, "rules")})
		default:
			r.file.parts = append(r.file.parts, part{e.key.text, sumOf(e.value, "")})
		}
	}
	all := fnv.New64a()
	fmt.Fprintf(all, "%v %q", r.includes, r.lines)
	for _, name := range slices.Sorted(maps.Keys(r.bodies)) {
		h := fnv.New64a()
		h.Write([]byte(r.bodies[name]))
		r.file.parts = append(r.file.parts, part{name, h.Sum64()})
		fmt.Fprintf(all, "%q %x", name, h.Sum64())
	}
	r.file.sum = all.Sum64()
	for _, at := range r.rules {
		var parts []part
		if !at.builtIn {
			for _, e := range at.node.entries {
				parts = append(parts, part{e.key.text, sumOf(e.value, "")})
			}
		}
		r.file.rulesParts = append(r.file.rulesParts, parts)
	}
}

// Sum returns a sum of the text of the file, of the files that it includes, and of those with texts of answers. Two
// versions with any difference have different sums, but for a chance of 1 in 2^64.
func (f *File) Sum() uint64 { return f.sum }

// sumOf returns a sum of a value, without entries of maps in it that have a name.
func sumOf(n *node, without string) uint64 {
	h := fnv.New64a()
	var buf []byte
	var add func(n *node)
	add = func(n *node) {
		buf = append(strconv.AppendInt(buf[:0], int64(n.kind), 10), ' ')
		buf = append(strconv.AppendQuote(buf, n.text), ' ')
		buf = append(strconv.AppendInt(buf, int64(len(n.items)), 10), '\n')
		h.Write(buf)
		for _, item := range n.items {
			add(item)
		}
		for _, e := range n.entries {
			if without == "" || e.key.text != without {
				buf = append(strconv.AppendQuote(buf[:0], e.key.text), ':')
				h.Write(buf)
				add(e.value)
			}
		}
		io.WriteString(h, "end\n")
	}
	add(n)
	return h.Sum64()
}
