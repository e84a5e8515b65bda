package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"fairshare/bots"
	"fairshare/internal/cli"
	"fairshare/internal/prose"
	"fairshare/internal/setup"
)

// A BotList is a question for the bots of a policy file.
type BotList struct {
	Policy string // a policy file, whose bots are listed; "" for the built-in bots
	Of     string // a bot, category, operator or purpose, in any case; "" for all bots
	State  string // the state folder, with copies of published ranges; "" for the default
	JSON   bool   // one JSON object a line
}

// A listedBot is one bot of the list.
type listedBot struct {
	Name          string        `json:"name"`
	Categories    []string      `json:"categories"`
	Operator      string        `json:"operator,omitempty"` // as policies write it
	Purpose       string        `json:"purpose,omitempty"`
	URL           string        `json:"url,omitempty"`
	UserTriggered bool          `json:"user_triggered,omitempty"`
	Ranges        []listedRange `json:"ranges,omitempty"`
	Domains       []string      `json:"domains,omitempty"`
	Signers       []string      `json:"signature_agents,omitempty"` // with whose keys it signs requests
}

// A listedRange is a set of published addresses that proves a bot.
type listedRange struct {
	Name     string    `json:"name"`
	Prefixes int       `json:"prefixes"`
	At       time.Time `json:"at,omitzero"` // of its oldest part
}

// Print writes the bots in the order of their names to env.Stdout.
func (l *BotList) Print(env *cli.Environment) error {
	file, err := readBotPolicy(l.Policy, env.Stderr)
	if err != nil {
		return err
	}
	identifier, err := setup.NewBotIdentifier(file, setup.BotOptions{})
	if err != nil {
		return setup.PrintFaults(env.Stderr, err)
	}
	defer identifier.Close(nil)
	if state, err := setup.StateFolder(l.State); err == nil {
		if err := identifier.LoadRanges(state, nil); err != nil {
			fmt.Fprintf(env.Stderr, "fairshare: %v\n", err)
		}
	}
	sets := map[string]bots.RangeSet{}
	for _, s := range identifier.Ranges() {
		sets[s.Name] = s
	}
	var list []listedBot
	for b := range identifier.Table.Bots {
		if l.holds(b) {
			list = append(list, newListedBot(b, sets))
		}
	}
	if list == nil {
		var known []string
		for b := range identifier.Table.Bots {
			known = append(append(append(known, b.Name), b.Categories...), b.OperatorName())
		}
		return cli.Hint(fmt.Errorf("%q is not a bot, category, operator or purpose", l.Of),
			prose.DidYouMean(operatorWord(l.Of), known))
	}
	slices.SortFunc(list, func(a, b listedBot) int { return strings.Compare(a.Name, b.Name) })
	out := bufio.NewWriter(env.Stdout)
	if l.JSON {
		for i := range list {
			e := json.NewEncoder(out)
			e.SetEscapeHTML(false)
			if err := e.Encode(&list[i]); err != nil {
				return err
			}
		}
	} else {
		printBotList(out, list)
	}
	return out.Flush()
}

// operatorWord returns an operator as the table has it.
func operatorWord(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

func (l *BotList) holds(b *bots.Bot) bool {
	word := operatorWord(l.Of)
	return word == "" || word == b.Name || slices.Contains(b.Categories, word) || word == b.OperatorName() ||
		word == b.Purpose
}

func newListedBot(b *bots.Bot, sets map[string]bots.RangeSet) listedBot {
	entry := listedBot{Name: b.Name, Categories: b.Categories, Operator: b.OperatorName(), Purpose: b.Purpose,
		URL: b.URL, UserTriggered: b.UserTriggered, Domains: b.Domains,
		Signers: b.Signers}
	for _, name := range b.Ranges {
		if s := sets[name]; s.Prefixes > 0 {
			entry.Ranges = append(entry.Ranges, listedRange{name, s.Prefixes, s.At})
		}
	}
	return entry
}

// proof says how a bot is verified.
func (b *listedBot) proof() string {
	var parts []string
	for _, r := range b.Ranges {
		text := fmt.Sprintf("%s of %s", prose.Plural(int64(r.Prefixes), "range"), r.At.UTC().Format(time.DateOnly))
		if r.Name != b.Name {
			text += " (" + r.Name + ")"
		}
		parts = append(parts, text)
	}
	if b.Domains != nil {
		parts = append(parts, "DNS: "+strings.Join(b.Domains, " "))
	}
	if b.Signers != nil {
		parts = append(parts, "signature: "+strings.Join(b.Signers, " "))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// printBotList prints a line for each bot, in columns.
func printBotList(w io.Writer, list []listedBot) {
	head := [4]string{"name", "categories", "operator", "purpose"}
	rows := make([][4]string, len(list))
	var width [4]int
	for i := range head {
		width[i] = len(head[i])
	}
	for i := range list {
		b := &list[i]
		rows[i] = [4]string{b.Name, strings.Join(b.Categories, ","), dash(b.Operator), dash(b.Purpose)}
		for j := range rows[i] {
			width[j] = max(width[j], len(rows[i][j]))
		}
	}
	line := func(row [4]string, proof string) {
		for j, s := range row {
			fmt.Fprintf(w, "%-*s  ", width[j], s)
		}
		fmt.Fprintln(w, proof)
	}
	line(head, "proof")
	for i := range rows {
		line(rows[i], list[i].proof())
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
