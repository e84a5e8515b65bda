package logreplay

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/internal/replay"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// Advice finds clients that take much of a site and that the policy lets pass, writes a limit
// for each, and replays the log with these limits. It keeps what helps much and touches nobody
// who may be a person, and no search engine.
//
// Only bots with a name get a limit: people never send it. That excludes search engines, and
// bots that fetch for a person or for the operators of the site (monitors, feed readers,
// previews). A tool or library gets one only together with its address, since apps that people
// use are made of the same libraries.

const (
	// largeShare is the share of the requests, bytes or time from which on a crawler, or all AI
	// crawlers together, take much; a tool at one address needs largeToolShare.
	largeShare     = 0.1
	largeToolShare = 0.2
	// leastOf is the share of such a sum from which on one bot is named in the rule.
	leastOf = 0.02
	// leastSaved is the share of the requests, bytes or time that a rule must save.
	leastSaved = 0.02
	// mostAdvised is how many rules are advised.
	mostAdvised = 3
	// quickLines is up to how many lines replay looks for rules by itself.
	quickLines = 50_000
	// leastEvidence is the least number of requests of a client or crawler that gets a rule.
	leastEvidence = 100
)

// Budgets per hour are never smaller than these: a crawler that stays below them harms no site.
const (
	leastRequests = 60
	leastBytes    = 5_000_000
	leastSeconds  = 30
)

// A candidate is a rule that may help.
type candidate struct {
	rule  replay.AdvisedRule
	taker string       // its name and address
	uses  replay.Usage // how much of it the policy lets pass
	sure  bool         // it helps although it saves little: a crawler breaks robots.txt

	// for an estimate of what the rule refuses
	takers    []*replay.Taker
	together  bool // they share the allowance
	allowance allowance
	clients   int64
	estimate  *replay.Usage // what it refuses; nil: the excess of takers
}

// A taker is a bot with what the policy let pass of it.
type taker struct {
	name, category     string
	verified, requests int64
	passed             replay.Usage
}

// isProved reports whether most requests come from verified addresses.
func (t *taker) isProved() bool { return 2*t.verified >= t.requests }

func sumOf(a, b replay.Usage) replay.Usage {
	return replay.Usage{Requests: a.Requests + b.Requests, Bytes: a.Bytes + b.Bytes, Seconds: a.Seconds + b.Seconds}
}

// newName returns a name for a rule that the policy does not have yet.
func (s *session) newName(name string) string {
	has := func(name string) bool {
		return slices.ContainsFunc(s.file.Policy.Rules, func(r fairshare.Rule) bool { return r.Name == name })
	}
	for n, base := 2, name; has(name); n++ {
		name = fmt.Sprintf("%s %d", base, n)
	}
	return name
}

// crawls lists the categories of bots that read whole sites for their own purposes.
var crawls = []string{"seo", "other", "academic", "archive", "scanner"}

// tools lists the categories of programs that anybody can run.
var tools = []string{"tool", "library", "headless"}

// notOneProgram lists bots of the table that stand for many different programs, among them
// apps of people and networks of proxies.
var notOneProgram = []string{"empty", "oversized", "no-browser", "other-bot", "amazon-cloudfront"}

// candidates returns the rules that may help, the largest share first.
func (s *session) candidates(r *replay.Report) []candidate {
	if r.From == nil || r.Lines == r.Skipped {
		return nil
	}
	var found []candidate
	var takers []taker
	for _, b := range r.Bots {
		if slices.Contains(notOneProgram, b.Name) || b.State == "forged" && b.Category == "search" {
			continue // a search engine whose addresses have changed since looks forged
		}
		at := slices.IndexFunc(takers, func(t taker) bool { return t.name == b.Name })
		if at < 0 {
			at = len(takers)
			takers = append(takers, taker{name: b.Name, category: b.Category})
		}
		t := &takers[at]
		t.requests += b.Requests
		passed := 1 - float64(b.Refused+b.Blocked)/float64(max(b.Requests, 1))
		t.passed.Requests += b.Requests - b.Refused - b.Blocked
		t.passed.Bytes += int64(float64(b.Bytes) * passed)
		t.passed.Seconds += b.Seconds * passed
		if b.State == "verified" {
			t.verified += b.Requests
		}
	}
	// All others are those that do not crawl for themselves.
	var crawled replay.Usage
	for _, t := range takers {
		if _, purpose := s.purpose(t.name); purpose == replay.Training || slices.Contains(crawls, t.category) {
			crawled = sumOf(crawled, t.passed)
		}
	}
	// All AI crawlers together; those of search engines and of people's assistants are not
	// among them.
	var ai []taker
	var sum replay.Usage
	for _, t := range takers {
		if _, purpose := s.purpose(t.name); purpose == replay.Training && t.category != "search" {
			ai = append(ai, t)
			sum = sumOf(sum, t.passed)
		}
	}
	if mostOf(sum, r.Total) >= largeShare {
		for _, proved := range []bool{true, false} {
			var names []string
			var uses replay.Usage
			for _, t := range ai {
				if t.isProved() == proved && mostOf(t.passed, r.Total) >= leastOf {
					names = append(names, t.name)
					uses = sumOf(uses, t.passed)
				}
			}
			name := "AI crawlers"
			if !proved {
				name = "AI crawlers without proof"
			}
			if len(names) > 0 && uses.Requests >= leastEvidence {
				found = append(found, crawlerRule(s.newName(name), names, proved, uses, crawled, r))
			}
		}
	}
	for _, t := range takers {
		if slices.Contains(crawls, t.category) && mostOf(t.passed, r.Total) >= largeShare &&
			!slices.ContainsFunc(ai, func(a taker) bool { return a.name == t.name }) &&
			t.passed.Requests >= leastEvidence {
			found = append(found, crawlerRule(s.newName("crawler "+t.name), []string{t.name}, t.isProved(), t.passed,
				crawled, r))
		}
	}
	found = append(found, s.toolRules(r)...)
	found = append(found, s.floodRules(r)...)
	found = append(found, s.robotsRules(r)...)
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Compare(mostOf(b.uses, r.Total), mostOf(a.uses, r.Total))
	})
	return found[:min(len(found), 2*mostAdvised)]
}

// toolRules returns limits of tools that run at one address each.
func (s *session) toolRules(r *replay.Report) (found []candidate) {
	seen := map[string]bool{}
	for _, t := range slices.Concat(r.Top, r.TopByBytes, r.TopByTime) {
		b := s.identifier.Table.Bot(t.Bot)
		if seen[t.Client] || b == nil || !slices.Contains(tools, b.Main()) || slices.Contains(notOneProgram, t.Bot) ||
			t.Approximate || t.Requests < leastEvidence || s.isProxy(t.Client) {
			continue
		}
		seen[t.Client] = true
		uses := passedOf(&t)
		if mostOf(uses, r.Total) < largeToolShare {
			continue
		}
		name := s.newName(t.Bot + " at " + t.Client)
		c := candidate{taker: t.Client + " (" + t.Bot + ")", uses: uses}
		limit, reason := budget(uses, uses, r)
		c.allowance, c.clients = limit, 1
		if l := r.Loads.Clients[t.Client]; l != nil {
			c.takers = []*replay.Taker{l}
		}
		c.rule = replay.AdvisedRule{Name: name, Reasons: []string{
			fmt.Sprintf("The program %s at %s took %s of the site.", t.Bot, t.Client, sharesOf(uses, r)), reason,
			"If it is yours, leave this rule out."}}
		c.rule.YAML = fmt.Sprintf("- name: %q\n  match: {addr: %q, bot: %s}\n  limit: {%s, per: 1h, by: addr}\n",
			name, t.Client, t.Bot, limit.text())
		found = append(found, c)
	}
	return found
}

// isProxy reports whether clients behind an address may be others: it is private or of a
// known proxy.
func (s *session) isProxy(client string) bool {
	addr, err := netip.ParseAddr(client)
	if err != nil || addr.IsPrivate() || addr.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(s.known, func(n replay.Network) bool { return n.Addrs.Contains(addr) })
}

// crawlerRule returns a budget for each of some crawlers. All crawlers used crawled. proved says
// that most of their requests come from verified addresses; those of one bot count together.
func crawlerRule(name string, bots []string, proved bool, uses, crawled replay.Usage, r *replay.Report) candidate {
	c := candidate{taker: strings.Join(bots, ", "), uses: uses}
	limit, reason := budget(uses, crawled, r)
	c.allowance, c.together = limit, !proved
	for _, name := range bots {
		if l := r.Loads.Bots[name]; l != nil {
			c.takers = append(c.takers, l)
		}
	}
	for _, b := range r.Bots {
		if slices.Contains(bots, b.Name) {
			c.clients += b.Clients
		}
	}
	by := "by: bot"
	if !proved {
		by = "by: everyone" // an address proves nothing: all clients with such a name count together
	}
	verb := "takes"
	if len(bots) > 1 {
		verb = "take"
	}
	c.rule = replay.AdvisedRule{Name: name, Reasons: []string{
		fmt.Sprintf("%s %s %s of the site.", prose.List(bots, "and"), verb, sharesOf(uses, r)), reason}}
	c.rule.YAML = fmt.Sprintf("- name: %s\n  match: {bot: [%s]}\n  limit: {%s, per: 1h, %s}\n", name,
		strings.Join(bots, ", "), limit.text(), by)
	return c
}

func sharesOf(uses replay.Usage, r *replay.Report) string {
	var a replay.Advice
	a.AddFinding("", uses, r.Total)
	return a.Findings[0].Shares()
}

// budget returns what a crawler may use in an hour, as the begin of a limit: as much as all
// others used in an average hour, without all that crawled. It limits the resource of which it
// uses most, compared to that.
func budget(uses, crawled replay.Usage, r *replay.Report) (limit allowance, reason string) {
	hours := max(r.To.Sub(*r.From).Hours(), 1)
	most := -1.0
	for _, resource := range []struct {
		resource            string
		uses, others, least float64
		scale               float64 // of the unit of an allowance
		unit                string
	}{
		{"requests", float64(uses.Requests), float64(r.Total.Requests - crawled.Requests), leastRequests, 1,
			" requests"},
		{"bytes", float64(uses.Bytes), float64(r.Total.Bytes - crawled.Bytes), leastBytes, 1, ""},
		{"time", uses.Seconds, r.Total.Seconds - crawled.Seconds, leastSeconds, 1e9, " of the site's time"},
	} {
		n := nice(max(resource.others/hours, resource.least))
		if excess := resource.uses / hours / n; excess > most {
			most, limit = excess, allowance{resource.resource, int64(math.Round(n * resource.scale))}
			_, amount, _ := strings.Cut(limit.text(), ": ")
			reason = fmt.Sprintf("%s%s an hour is at least what all others together use in an average hour.", amount,
				resource.unit)
		}
	}
	return limit, reason
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, digit := range []float64{1, 2, 5} {
		if x <= digit*power*(1+1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

func sizeText(n float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"GB", 1e9}, {"MB", 1e6}} {
		if n >= u.size {
			return strconv.FormatInt(int64(n/u.size), 10) + u.unit
		}
	}
	return strconv.FormatInt(int64(n/1e3), 10) + "kB"
}

func share(n, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return n / all
}

func mostOf(u, all replay.Usage) float64 {
	return max(share(float64(u.Requests), float64(all.Requests)), share(float64(u.Bytes), float64(all.Bytes)),
		share(u.Seconds, all.Seconds))
}

// advise returns what to do about a log. It replays the log again only if measure is set.
func (s *session) advise(base *replay.Report, measure bool) (*replay.Advice, error) {
	advice := &replay.Advice{Findings: []replay.Finding{}, Rules: []replay.AdvisedRule{}, Measured: measure,
		Suggest: s.suggestCommand(), Notes: notes(base)}
	found := s.candidates(base)
	for i := range found {
		advice.AddFinding(found[i].taker, found[i].uses, base.Total)
	}
	if !measure {
		advice.Rules = append(advice.Rules, s.estimateAll(base, found)...)
		advice.Estimated = len(advice.Rules) > 0
		return advice, nil
	}
	found, protected, err := s.tryAll(base, found)
	if err != nil {
		return nil, err
	}
	for len(found) > 0 {
		harm := &replay.Trials{Protected: protected, Harm: map[string]int64{}}
		r, err := s.trialRun(found, harm)
		if err != nil {
			return nil, err
		}
		kept := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool {
			row := rowOf(r, c.rule.Name)
			return row.Clients == 0 || row.People > 0 || harm.Harm[c.rule.Name] > 0
		})
		if len(kept) < len(found) {
			found = kept
			continue
		}
		if harmed(base, r) {
			found = found[:len(found)-1]
			continue
		}
		for _, c := range found {
			row := rowOf(r, c.rule.Name)
			c.rule.Refused, c.rule.Clients, c.rule.People = row.Saved, row.Clients, row.People
			advice.Rules = append(advice.Rules, c.rule)
		}
		break
	}
	return advice, nil
}

// notes describes the clients that take much and get no rule.
func notes(r *replay.Report) []string {
	notes := []string{}
	of := map[string]replay.Usage{}
	var engines []string
	for _, b := range r.Bots {
		if b.Category == "search" && b.State != "forged" {
			if _, known := of[b.Name]; !known {
				engines = append(engines, b.Name)
			}
			of[b.Name] = sumOf(of[b.Name], b.Usage)
		}
	}
	for _, name := range engines {
		if mostOf(of[name], r.Total) >= largeToolShare {
			notes = append(notes,
				fmt.Sprintf("%s takes %s. It is a search engine: a limit would cost visitors, so none is "+
					"suggested. Its operator's pages for webmasters say how to slow it down.", name, sharesOf(of[name],
					r)))
		}
	}
	seen := map[string]bool{}
	for _, t := range slices.Concat(r.Top[:min(1, len(r.Top))], r.TopByBytes[:min(1, len(r.TopByBytes))],
		r.TopByTime[:min(1, len(r.TopByTime))]) {
		uses := replay.Usage{Requests: t.Requests, Bytes: t.Bytes, Seconds: t.Seconds}
		if seen[t.Client] || t.Bot != "" || r.Clients < 2 || 2*(t.Refused+t.Blocked) > t.Requests || mostOf(uses,
			r.Total) < 0.3 {
			continue
		}
		seen[t.Client] = true
		notes = append(notes,
			fmt.Sprintf("%s takes %s, and may be a person, an office or a proxy, so no rule is suggested. "+
				"--verdicts FILE writes its requests.", t.Client, sharesOf(uses, r)))
	}
	return notes
}

// rowOf returns the effect of a rule.
func rowOf(r *replay.Report, name string) replay.RuleReport {
	for _, row := range r.Rules {
		if row.Name == name {
			return row
		}
	}
	return replay.RuleReport{}
}

// harmed reports whether more people, verified search engines, or bots that act for people were
// refused than before.
func harmed(before, after *replay.Report) bool {
	spared := func(r *replay.Report) (n int64) {
		for _, b := range r.Bots {
			if b.State != "forged" && slices.Contains([]string{"search", "fetcher", "feed", "monitor", "preview"},
				b.Category) {
				n += b.Refused + b.Blocked
			}
		}
		return n
	}
	return after.People.Refused > before.People.Refused || spared(after) > spared(before)
}

// leadingAllows returns how many rules at the top are permissions: advised rules go below them.
func leadingAllows(rules []fairshare.Rule) (n int) {
	for n < len(rules) && rules[n].Action == fairshare.Allow {
		n++
	}
	return n
}

// parseRules reads the rules of candidates as a policy file would.
func (s *session) parseRules(found []candidate) ([]fairshare.Rule, error) {
	if len(found) == 0 {
		return nil, nil
	}
	var text strings.Builder
	if s.owners != nil { // so that the rules may match owners; the file is not read
		text.WriteString("asn: {file: owners}\n")
	}
	text.WriteString("rules:\n")
	for _, c := range found {
		text.WriteString(c.rule.YAML)
	}
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("suggestion", []byte(text.String()))
	if err != nil {
		return nil, fmt.Errorf("a suggested rule is not valid: %w", err)
	}
	return file.Policy.Rules, nil
}

// suggestCommand returns the command that writes the suggestions.
func (s *session) suggestCommand() string {
	return s.command("suggest", s.Policy) + " > suggested.yaml"
}

// command returns a command with the same options and logs, and another policy file.
func (s *session) command(verb, policy string) string {
	command := "fairshare " + verb
	for _, flag := range []struct{ name, value string }{{"-c", policy}, {"--format", s.Format},
		{"--timezone", s.zone()}, {"--state", s.State}, {"--robots", s.Robots}} {
		if flag.value != "" {
			command += " " + flag.name + " " + quote(flag.value)
		}
	}
	if s.Resolve {
		command += " --resolve"
	}
	if len(s.Logs) > 3 {
		return command + " LOG…"
	}
	return command + " " + s.quotedLogs()
}

// zone returns the zone of the logs as a flag, "" for the default.
func (s *session) zone() string {
	if s.Zone == nil {
		return ""
	}
	return s.Zone.String()
}

// quotedLogs returns the logs as arguments of a shell.
func (s *session) quotedLogs() string {
	var logs []string
	for _, path := range s.Logs {
		logs = append(logs, quote(path))
	}
	return strings.Join(logs, " ")
}

// quote returns an argument of a shell, in quotes if necessary.
func quote(arg string) string {
	if arg != "" && strings.Trim(arg,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:+,=@%") == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
