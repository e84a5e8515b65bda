package logreplay

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"fairshare/internal/amount"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// Suggest replays the logs, looks for rules that would have helped, and writes the policy with
// these rules and their reasons to env.Stdout.
func Suggest(env *cli.Environment, opts Options) error {
	s, err := open(env, opts)
	if err != nil {
		return err
	}
	defer s.identifier.Close(nil)
	if err := s.canRepeat(); err != nil {
		return err
	}
	options, warnings, err := s.options()
	if err != nil {
		return err
	}
	people := map[netip.Addr]bool{}
	options.Person = func(addr netip.Addr) { people[addr] = true }
	base, err := s.replay(options, nil)
	if err != nil {
		return err
	}
	if base.From == nil {
		return cli.Hint(fmt.Errorf("no line of %s could be judged", strings.Join(s.Logs, ", ")),
			"fairshare replay shows why; --format sets the format of the log")
	}
	for _, w := range append(base.Warnings, warnings...) {
		s.log(cli.OneLine(fmt.Errorf("%s", w.Text)))
	}
	advice, err := s.advise(base, true)
	if err != nil {
		return err
	}
	var least []replay.LeastLimit
	if len(people) > 0 {
		if options, _, err = s.options(); err != nil {
			return err
		}
		options.Measure = func(addr netip.Addr) bool { return people[addr] }
		r, err := s.replay(options, nil)
		if err != nil {
			return err
		}
		least = r.Least
	}
	text, err := s.suggestion(base, advice, least, len(people))
	if err != nil {
		return err
	}
	_, err = env.Stdout.Write(text)
	return err
}

// suggestion returns the policy with the advised rules.
func (s *session) suggestion(base *replay.Report, advice *replay.Advice, least []replay.LeastLimit,
	people int) ([]byte, error) {
	var head bytes.Buffer
	comment := func(indent, text string) string {
		var out strings.Builder
		for _, l := range prose.Wrap(prose.Printable(text), 96-len(indent)) {
			out.WriteString(indent + "# " + l + "\n")
		}
		return out.String()
	}
	paths := strings.Join(s.Logs, ", ")
	head.WriteString(comment("", fmt.Sprintf("Suggested by fairshare suggest from %s: %s, %s to %s UTC.", paths,
		prose.Plural(base.Lines-base.Skipped, "request"), base.From.Format("2006-01-02 15:04:05"),
		base.To.Format("2006-01-02 15:04:05"))))
	var rules []string
	for i := range advice.Rules {
		rule := &advice.Rules[i]
		var text strings.Builder
		for _, reason := range rule.Reasons {
			text.WriteString(comment("", reason))
		}
		text.WriteString(comment("", rule.Effect()))
		text.WriteString(rule.YAML)
		rules = append(rules, text.String())
	}
	what := "The built-in policy"
	if s.Policy != "" {
		what = s.Policy
	}
	refused := base.Verdicts.Refuse + base.Verdicts.Block
	switch {
	case len(rules) == 0:
		reason := "nothing that it lets pass takes much of the site without signs of people."
		if len(advice.Findings) > 0 {
			reason = "no further rule would have helped much without touching people."
		}
		head.WriteString(comment("",
			fmt.Sprintf("Nothing needs to be done. %s refuses %s, and %s This is the same policy.",
				what, prose.Plural(refused, "request"), reason)))
		s.log("nothing needs to be done: the policy stays as it is")
	default:
		head.WriteString(comment("",
			fmt.Sprintf("%s refuses %s. With %s more it refuses those below, too. Test it on the log:",
				what, prose.Plural(refused, "request"), prose.Plural(len(rules), "rule"))))
		head.WriteString("#\n" + "#     " + s.command("replay", "suggested.yaml") + "\n")
	}
	for _, note := range advice.Notes {
		head.WriteString("#\n" + comment("", note))
	}
	head.WriteString("\n")

	data := []byte("rules:\n  - {use: default}\n")
	if s.Policy != "" {
		var err error
		if data, err = os.ReadFile(s.Policy); err != nil {
			return nil, err
		}
	}
	if len(rules) > 0 {
		at := leadingAllows(s.file.Policy.Rules)
		inserted, ok := insertRules(data, at, rules)
		if !ok || !s.sameRules(inserted, len(rules)) {
			return nil,
				cli.Hint(fmt.Errorf("%s: its rules are not a plain list, one below the other, so the suggested rules cannot be inserted",
					s.Policy), "put this below its first permissions:\n"+strings.Join(rules, "\n"))
		}
		data = inserted
	}
	out := append(head.Bytes(), data...)
	if len(least) > 0 {
		var tail strings.Builder
		tail.WriteString("\n" + comment("",
			fmt.Sprintf("Room in the limits. %s of this log look like people: they have a browser's user "+
				"agent, fetched page assets, sent referers, and do not behave as programs do. After each limit "+
				"stands the smallest amount that would have refused none of them. Other people may need more, so leave room.", prose.Plural(people, "client"))) + "#\n")
		wide := 0
		for _, l := range least {
			wide = max(wide, len([]rune(l.Rule)))
		}
		wide = min(wide, 48)
		for _, l := range least {
			now, smallest := l.Limit()
			mark := ""
			if l.Least > l.N {
				mark = "  (the limit is smaller)"
			}
			fmt.Fprintf(&tail, "#   %-*s  %s; smallest: %s%s\n", wide, prose.Cut(prose.Printable(l.Rule), wide),
				amount.Allowance(now),
				amount.Of(smallest.Resource.String(), smallest.N), mark)
		}
		out = append(out, tail.String()...)
	}
	return out, nil
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// sameRules reports whether a policy text has the rules of the policy file and n more.
func (s *session) sameRules(data []byte, n int) bool {
	name := s.Policy
	if name == "" {
		name = "suggested.yaml"
	}
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse(name, data)
	if err != nil || len(file.Policy.Rules) != len(s.file.Policy.Rules)+n {
		return false
	}
	at := leadingAllows(s.file.Policy.Rules)
	for i, rule := range s.file.Policy.Rules {
		if i >= at {
			i += n
		}
		if file.Policy.Rules[i].Name != rule.Name {
			return false
		}
	}
	return true
}

var rulesLine = regexp.MustCompile(`^rules:[ \t]*(#.*)?$`)

// insertRules inserts rules, each an item in YAML with comments above it, before item number at of
// the policy's list of rules.
func insertRules(data []byte, at int, rules []string) ([]byte, bool) {
	lines := strings.SplitAfter(string(data), "\n")
	begin := -1
	for i, l := range lines {
		if rulesLine.MatchString(strings.TrimRight(l, "\r\n")) {
			begin = i + 1
			break
		}
	}
	if begin < 0 {
		return nil, false
	}
	indent, item := -1, 0
	end := len(lines)
	where := -1
	for i := begin; i < len(lines); i++ {
		text := strings.TrimRight(lines[i], "\r\n")
		body := strings.TrimLeft(text, " ")
		if body == "" || body[0] == '#' {
			continue
		}
		depth := len(text) - len(body)
		isItem := strings.HasPrefix(body, "- ") || body == "-"
		if indent < 0 {
			if !isItem {
				return nil, false
			}
			indent = depth
		}
		if depth < indent || depth == indent && !isItem {
			end = i
			break
		}
		if depth == indent {
			if item == at {
				where = i
			}
			item++
		}
	}
	if where < 0 && item == at {
		where = end
	}
	if where < 0 || indent < 0 {
		return nil, false
	}
	for where > begin && strings.HasPrefix(strings.TrimLeft(lines[where-1], " "), "#") {
		where-- // comments belong to the rule below them
	}
	var out strings.Builder
	out.WriteString(strings.Join(lines[:where], ""))
	if where > 0 && !strings.HasSuffix(lines[where-1], "\n") {
		out.WriteString("\n")
	}
	for _, rule := range rules {
		for _, l := range strings.SplitAfter(strings.TrimSuffix(rule, "\n"), "\n") {
			out.WriteString(strings.Repeat(" ", indent) + l)
		}
		out.WriteString("\n\n")
	}
	out.WriteString(strings.Join(lines[where:], ""))
	return []byte(out.String()), true
}
