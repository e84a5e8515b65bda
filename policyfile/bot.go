package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairshare"
	"fairshare/botauth"
	"fairshare/internal/prose"
)

// Bots says which table describes bots, and how often their ranges are fetched.
type Bots struct {
	Table   string        // file, see File.ResolvePath; "" means the built-in table
	Refresh time.Duration // how often published ranges are fetched, or NeverRefresh; 0 means the default

	// Agents are signers of requests (Web Bot Auth) by their host, as
	// botauth.NormalAgent returns it. They are in addition to those of the table.
	Agents map[string]BotAgent
}

// NeverRefresh is a Bots.Refresh: the ranges that are part of the program stay in use.
const NeverRefresh time.Duration = -1

// A BotAgent says which bot a signature of an agent proves.
type BotAgent struct {
	Bot  string // its name, of the table or a new one
	Keys string // file with its keys, see File.ResolvePath; "" means that they are fetched from its host
}

// maxAgents is the largest number of agents of one policy.
const maxAgents = 50

const agentsExample = "{agent.example: {bot: examplebot}}"

// Bounds of refresh: operators publish new ranges every few days.
const (
	minRefresh     = time.Hour
	maxRefresh     = 31 * 24 * time.Hour
	defaultRefresh = 24 * time.Hour
)

// RefreshRanges returns how often published ranges of bots are fetched; 0 means never.
// By default they are fetched once a day if a rule looks at bots.
func (f *File) RefreshRanges() time.Duration {
	switch {
	case f.Bots.Refresh < 0:
		return 0
	case f.Bots.Refresh == 0 && f.usesBots():
		return defaultRefresh
	}
	return f.Bots.Refresh
}

// usesBots reports whether a rule looks at bots.
func (f *File) usesBots() bool {
	var tests func(m *fairshare.Match) bool
	tests = func(m *fairshare.Match) bool {
		return m.TestsBots() || slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return tests(&not) })
	}
	return slices.ContainsFunc(f.Policy.Rules, func(rule fairshare.Rule) bool {
		if tests(&rule.Match) || rule.Ban != nil && rule.Ban.Unless != nil && tests(rule.Ban.Unless) {
			return true
		}
		return rule.Limit != nil && slices.ContainsFunc(rule.Limit.By, func(part fairshare.KeyPart) bool {
			return part.Kind == fairshare.ByBot || part.Kind == fairshare.ByOperator || part.Kind == fairshare.ByPurpose
		})
	})
}

// A BotName is a bot or a category in a table of bots. All texts but Operator are
// in lower case.
type BotName struct {
	Name          string
	Categories    []string
	Operator      string // as policies write it, such as "mistral-ai"; "" means unknown
	Checked       bool   // it can be verified
	UserTriggered bool   // any user can make it fetch a page
	Category      bool   // Name is a category; categories of bots need no BotName of their own
}

func botsKeys() []key[Bots] {
	return []key[Bots]{
		{"table", func(r *reader, n *node, b *Bots) { b.Table = r.fileName(n, "table", "") }},
		{"refresh", func(r *reader, n *node, b *Bots) {
			if n.kind == scalarNode && n.text == "never" {
				b.Refresh = NeverRefresh
				return
			}
			off := []string{"false", "off", "no", "none"}
			if n.kind == scalarNode && slices.Contains(off, strings.ToLower(n.text)) {
				r.fault(n, "refresh: never", "refresh: a duration is needed, such as 24h, not %s", n.describe())
				return
			}
			if n.kind == scalarNode && (plainDigits(n.text) || strings.EqualFold(n.text, "true") ||
				strings.EqualFold(n.text, "daily")) {
				r.fault(n, "refresh: 24h", "refresh: a duration is needed, such as 24h, not %s", n.describe())
				return
			}
			b.Refresh = r.duration(n, "refresh", minRefresh, maxRefresh)
		}},
		{"agents", readBotAgents},
	}
}

func botAgentKeys() []key[BotAgent] {
	return []key[BotAgent]{
		{"bot", func(r *reader, n *node, a *BotAgent) { a.Bot = r.agentBot(n) }},
		{"keys", func(r *reader, n *node, a *BotAgent) { a.Keys = r.fileName(n, "keys", "") }},
	}
}

func readBotAgents(r *reader, n *node, b *Bots) {
	if n.kind != mapNode || len(n.entries) == 0 {
		r.fault(n, "agents: "+agentsExample, "bots: agents: a map of hosts and bots is needed, not %s", n.describe())
		return
	}
	b.Agents = map[string]BotAgent{}
	for i, e := range n.entries {
		name := e.key.text
		if i == maxAgents {
			r.fault(e.key, "", "bots: more than %d agents", maxAgents)
			return
		}
		agent, ok := botauth.NormalAgent(name)
		if !ok {
			hint := "agents: " + agentsExample
			if rest, found := strings.CutPrefix(strings.ToLower(name), "https://"); found {
				if host, ok := botauth.NormalAgent(strings.TrimRight(rest, "/")); ok {
					hint = host + ": {bot: NAME}"
				}
			}
			r.fault(e.key, hint, "agents: the host of an agent is needed, such as agent.example, not %s", quote(name))
			continue
		}
		if _, twice := b.Agents[agent]; twice {
			r.fault(e.key, "", "the agent %s is listed twice", quote(agent))
			continue
		}
		var a BotAgent
		if got := readMap(r, e.value, name, "{bot: examplebot}", botAgentKeys(), &a); got != nil && !got.has("bot") {
			r.missing(e.value, name+": {bot: NAME}", "agents: the name of the bot is needed that signatures of %s prove",
				quote(name))
		}
		b.Agents[agent] = a
	}
}

// agentBot reads the name of a bot, of the table or a new one.
func (r *reader) agentBot(n *node) string {
	s, ok := r.text(n, "bot")
	if !ok {
		return ""
	}
	name := strings.ToLower(s)
	if !botName(name) || strings.Contains(name, " ") || slices.Contains(states, name) {
		r.fault(n, "bot: examplebot", "bot: a name of 1 to %d characters of a-z, 0-9, \".\", \"-\" and \"_\" is needed, not %s",
			maxBotName, quote(s))
		return ""
	}
	return name
}

func (a BotAgent) description(host string) string {
	from := "https://" + host + botauth.DirectoryPath
	if a.Keys != "" {
		from = a.Keys
	}
	return fmt.Sprintf("agents: a signature of %s proves that a client is %s; its keys come from %s.", host, a.Bot, from)
}

// warnAgents warns of agents whose signatures never count.
func (r *reader) warnAgents() {
	if len(r.file.Bots.Agents) > 0 && len(r.file.Hosts) == 0 {
		r.warn(firstNode(find(find(r.root, "bots"), "agents")), "hosts: [the names of your site]",
			"agents: signatures of bots count only for hosts that the policy names, and it has no hosts")
	}
}

func readBots(r *reader, n *node, f *File) {
	example := "{refresh: 24h}"
	if n.kind == scalarNode && (n.text == "share" || n.text == "shared") {
		r.fault(n, "sessions: "+sessionsExample, "bots: a map is needed, not %s", n.describe())
		return
	}
	got := readMap(r, n, "bots", example, botsKeys(), &f.Bots)
	if got != nil && len(n.entries) == 0 {
		r.fault(n, "bots: "+example, "bots: the map is empty")
	}
	if table := find(n, "table"); table != nil {
		if f.Bots.Table == "" {
			r.botsLoaded = true // the name of the table is a fault already, so its content is unknown
		}
		r.loadBots(table)
	}
}

// A botTable holds the names and categories that a bot condition may use.
type botTable map[string]botEntry

// A botEntry describes a name, a category, or both.
type botEntry struct {
	verifiable    bool // some bot of it can be verified and is not user-triggered
	userTriggered bool // some bot of it can be verified but is user-triggered
	search        bool // some bot of it is a search engine

	category bool
	operator string // "" means unknown
}

// mergeBot adds the facts about a bot to an entry that stands for it.
func (w *botEntry) mergeBot(b *BotName, search bool) {
	w.verifiable = w.verifiable || b.Checked && !b.UserTriggered
	w.userTriggered = w.userTriggered || b.Checked && b.UserTriggered
	w.search = w.search || search
}

// loadBots loads the names of the table, once. at is the node with the name of the
// table's file.
func (r *reader) loadBots(at *node) {
	if r.botsLoaded || r.options.Bots == nil {
		return
	}
	r.botsLoaded = true
	list, err := r.options.Bots(r.file.ResolvePath(r.file.Bots.Table))
	if err != nil {
		r.fault(firstNode(at), "", "bots: table: %v", err)
		return
	}
	r.bots, r.operators = botTable{}, botTable{}
	for _, a := range r.file.Bots.Agents {
		if known := slices.IndexFunc(list, func(b BotName) bool { return b.Name == a.Bot }); known >= 0 {
			list[known].Checked = true
		} else if a.Bot != "" {
			list = append(list, BotName{Name: a.Bot, Categories: []string{"other"}, Checked: true})
		}
	}
	for _, b := range list {
		search := !b.UserTriggered && slices.Contains(b.Categories, "search")
		if b.Operator != "" {
			w := r.operators[b.Operator]
			w.mergeBot(&b, search)
			r.operators[b.Operator] = w
		}
		for _, word := range append([]string{b.Name}, b.Categories...) {
			w := r.bots[word]
			if w.category = w.category || b.Category || slices.Contains(b.Categories, word); !b.Category {
				if word == b.Name {
					w.operator = b.Operator
				}
				w.mergeBot(&b, search && (word == b.Name || word == "search"))
			}
			r.bots[word] = w
		}
	}
}

// has reports whether the table knows a name or category.
func (r *reader) has(word string) bool {
	_, known := r.bots[word]
	return known
}

// states are the values of a bot condition that are not names of bots.
var states = []string{"known", "verified", "forged"}

const (
	maxBots    = 1000 // of one condition
	maxBotName = 40   // bytes

	maxCategories = 30 // in one hint
)

// botConditions reads states, names and categories of bots, and returns them in
// lower case.
func (r *reader) botConditions(n *node) []string {
	r.loadBots(nil)
	list := []string{}
	for i, item := range r.list(n, "bot") {
		if i == maxBots {
			r.fault(item, "a category such as search, ai or seo", "bot: more than %d values", maxBots)
			break
		}
		s, ok := r.pattern(item, "bot")
		if !ok {
			continue
		}
		if isRegexp(s) {
			list = append(list, s)
			continue
		}
		word := strings.ToLower(s)
		if slices.Contains(states, word) || r.has(word) {
			list = append(list, word)
			continue
		}
		if r.tooManyFaults() {
			r.omitted++
			continue
		}
		hint := r.botHint(word)
		if r.bots == nil && hint == "" && botName(word) {
			list = append(list, word)
			continue
		}
		r.fault(item, hint, "bot: %s is not one of %s, and not the name or category of a bot", quote(s),
			strings.Join(states, ", "))
	}
	return list
}

// stateWords are the values of match: {state: …}.
var stateWords = []string{fairshare.Verified.String(), fairshare.Pending.String(), fairshare.Forged.String(),
	fairshare.Claimed.String()}

// botStates reads the states of bots.
func (r *reader) botStates(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "state") {
		if word := r.choice(item, "state", stateWords, map[string]string{
			"real": "verified", "genuine": "verified", "proven": "verified", "true": "verified",
			"fake": "forged", "false": "forged", "unknown": "pending", "unverifiable": "known", "claimed": "known",
		}); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// operatorWord returns an operator as the table has it, for "Mistral AI" too.
func operatorWord(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }

// operatorNames reads operators of bots, and returns them as the table has them.
func (r *reader) operatorNames(n *node) []string {
	r.loadBots(nil)
	list := []string{}
	for _, item := range r.list(n, "operator") {
		s, ok := r.pattern(item, "operator")
		if !ok {
			continue
		}
		word := s
		if !isRegexp(s) {
			word = operatorWord(s)
		}
		if _, known := r.operators[word]; !known && !isRegexp(s) && (r.operators != nil || !botName(word)) {
			if r.tooManyFaults() {
				r.omitted++
				continue
			}
			hint := prose.DidYouMean(word, slices.Sorted(maps.Keys(r.operators)))
			if b := r.bots[word]; b.operator != "" {
				hint = `did you mean "` + b.operator + `"?`
			} else if r.has(word) {
				hint = "bot: " + word + " is the name of a bot"
			} else if hint == "" {
				hint = "fairshare bot --list shows all operators"
			}
			r.fault(item, hint, "operator: %s is not the operator of a bot", quote(s))
			continue
		}
		list = append(list, word)
	}
	return list
}

// botName reports whether s can be the name of a bot.
func botName(s string) bool {
	return s != "" && len(s) <= maxBotName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_ ") == ""
}

// crawlers are names that hints know without a table.
var crawlers = []string{"googlebot", "bingbot", "applebot", "duckduckbot", "yandexbot", "baiduspider", "gptbot",
	"claudebot"}

// botSynonyms are other words for states and categories.
var botSynonyms = map[string]string{
	"good": "verified", "verify": "verified", "real": "verified", "genuine": "verified", "trusted": "verified",
	"true": "known", "yes": "known",
	"searchengine": "search", "searchengines": "search", "search engine": "search", "search engines": "search",
	"engines": "search",
	"bad":     "forged", "fake": "forged", "faked": "forged", "spoofed": "forged", "forge": "forged",
	"impostor": "forged",
	"any":      "known", "all": "known", "*": "known", "bot": "known", "bots": "known", "crawler": "known",
	"crawlers": "known", "claimed": "known",
}

// botHint returns a fix for an unknown word of a bot condition.
func (r *reader) botHint(word string) string {
	switch {
	case botSynonyms[word] != "":
		return `did you mean "` + botSynonyms[word] + `"?`
	case slices.Contains([]string{"none", "no", "false", "human", "humans", "person", "people", "browser", ""}, word):
		return "a rule for bot: known above it, and this one without bot"
	case word == "unverified":
		return "a rule for bot: verified above it, and this one for bot: known"
	case word == "pending":
		return "state: pending, next to bot"
	case slices.Contains([]string{"ai training", "training", "ai search", "ai user"}, word):
		return `did you mean "ai-` + strings.TrimPrefix(word, "ai ") + `"?`
	case word == "steered" || word == "user-triggered":
		return "no condition is needed: they are ordinary clients"
	case strings.Contains(word, "*"):
		return "a category such as search, ai or seo, or names in brackets: [a, b]"
	case strings.ContainsAny(word, ",;"):
		return "write several values in brackets: [a, b]"
	}
	if r.bots == nil {
		return prose.DidYouMean(word, states)
	}
	if state, rest, found := strings.Cut(word, " "); found && slices.Contains(states, state) && r.has(rest) {
		if state == "forged" {
			return "{bot: " + rest + ", state: forged}"
		}
		return "{bot: " + rest + ", state: " + state + "}"
	}
	if _, known := r.operators[word]; known {
		return "operator: " + word + ", next to bot or instead of it"
	}
	names := slices.Sorted(maps.Keys(r.bots))
	name, _, _ := strings.Cut(word, "/")          // Googlebot/2.1
	host, domain, _ := strings.Cut(name, ".")     // googlebot.com
	squeezed := strings.ReplaceAll(name, " ", "") // google bot
	for _, s := range []string{name, squeezed, host, squeezed + "bot", host + "bot"} {
		if r.has(s) && s != word {
			return `did you mean "` + s + `"?`
		}
	}
	if strings.Contains(domain, ".") || domain == "com" || domain == "org" || domain == "net" {
		return `hostname: "*.` + shorten(word) + `" looks at the hostnames of addresses`
	}
	typo := prose.DidYouMean(name, append(slices.Clone(states), names...))
	var near, categories []string
	for _, known := range names {
		if r.bots[known].operator == name {
			typo = ""
		}
		if len(name) > 2 && (strings.HasPrefix(known, name) || r.bots[known].operator == name) {
			near = append(near, `"`+known+`"`)
		}
		if r.bots[known].category {
			categories = append(categories, known)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return len(a) - len(b) })
	switch {
	case typo != "":
		return typo
	case len(near) == 1:
		return "did you mean " + near[0] + "?"
	case near != nil:
		return "did you mean one of " + strings.Join(near[:min(len(near), maxTexts)], ", ") + "?"
	case categories != nil:
		return "fairshare bot 'USER AGENT' shows the name; categories are " +
			strings.Join(categories[:min(len(categories), maxCategories)], ", ")
	}
	return ""
}

// searches reports whether a search engine can match a word of a bot condition.
func (r *reader) searches(word string) bool {
	switch word {
	case "known", "verified", "search":
		return true
	}
	return r.bots[word].search
}

// warnBots warns of bot conditions that hold for no bot, or for fewer bots than
// they seem to. Permissions hold only for verified bots that are not
// user-triggered. favorable says that the match is part of a permission.
func (r *reader) warnBots(n *node, favorable bool) {
	if n == nil {
		return
	}
	values := items(find(n, "bot"))
	for _, item := range values {
		word := strings.ToLower(item.text)
		w, known := r.bots[word]
		switch {
		case word == "forged" && favorable:
			r.warn(item, "write a block or a limit for forged bots",
				"bot: forged never holds here: a permission holds only for verified bots")
		case word == "known" && favorable:
			r.warn(item, "use bot: verified, and another rule for the others",
				"bot: known holds here only for verified bots, and never for user-triggered ones")
		case slices.Contains(states, word):
			if len(values) > 1 && word != "forged" {
				r.warn(item, "use only one of them",
					"bot: %s with other values: one of them is enough, and %s already holds for every such bot", word,
					word)
			}
		case favorable && known && !w.verifiable && w.userTriggered:
			r.warn(item, "it is an ordinary client: use a limit by addr",
				"bot: %s never holds here: any user can make it fetch a page", quote(word))
		case favorable && known && !w.verifiable:
			r.warn(item, "use addr with its addresses, or hostname",
				"bot: %s never holds here: it cannot be verified", quote(word))
		}
	}
	for _, item := range items(find(n, "operator")) {
		switch w, known := r.operators[operatorWord(item.text)]; {
		case !favorable || !known || w.verifiable:
		case w.userTriggered:
			r.warn(item, "they are ordinary clients: use a limit by addr",
				"operator: %s never holds here: any user can make its bots fetch a page", quote(item.text))
		default:
			r.warn(item, "use addr with its addresses, or hostname",
				"operator: %s never holds here: its bots cannot be verified", quote(item.text))
		}
	}
	r.warnStates(n, favorable)
	if favorable {
		r.warnHostnames(n)
	}
	for _, not := range items(find(n, "not")) {
		r.warnBots(not, !favorable)
	}
}

// warnStates warns of states that never hold, and of restrictions that hold for
// claims only, since none of their bots can be verified.
func (r *reader) warnStates(n *node, favorable bool) {
	given := items(find(n, "state"))
	for _, item := range given {
		if favorable && item.text != fairshare.Verified.String() {
			r.warn(item, "state: verified, or write a block or a limit for these",
				"state: %s never holds here: a permission holds only for verified bots", item.text)
		}
	}
	if favorable || r.bots == nil {
		return
	}
	proof := []*node{} // words of bots without any proof
	for _, item := range items(find(n, "bot")) {
		word := strings.ToLower(item.text)
		w, known := r.bots[word]
		if !known || w.verifiable || w.userTriggered || w.category {
			return
		}
		proof = append(proof, item)
	}
	for _, item := range items(find(n, "operator")) {
		if w, known := r.operators[operatorWord(item.text)]; !known || w.verifiable || w.userTriggered {
			return
		}
		proof = append(proof, item)
	}
	if len(proof) == 0 {
		return
	}
	at, what := proof[0], quote(strings.ToLower(proof[0].text))
	if len(proof) > 1 {
		what += " and the others"
	}
	if given != nil && !slices.ContainsFunc(given, func(s *node) bool { return s.text == fairshare.Claimed.String() }) {
		r.warn(given[0], "remove state, or use state: known",
			"state: %s never holds here: %s cannot be verified", given[0].text, what)
		return
	}
	if given == nil {
		r.warn(at, "by: addr or by: network counts each client separately; state: known says that you intend to match claims",
			"%s cannot be verified: the rule holds for every client that claims the name, true or not", what)
	}
}

// warnBotBlock warns of a rule that removes the site from search engines: it
// answers them with a 4xx other than 429.
func (r *reader) warnBotBlock(i int) {
	rule := &r.file.Policy.Rules[i]
	status := 429
	if rule.Limit == nil {
		status = 403
	}
	if rule.Answer != nil && rule.Answer.Status != 0 {
		status = rule.Answer.Status
	}
	m := &rule.Match
	if rule.DryRun || status < 400 || status > 499 || status == 429 ||
		rule.Answer != nil && rule.Answer.Redirect != "" ||
		m.State != nil && !slices.Contains(m.State, fairshare.Verified.String()) ||
		m.Path != nil || m.Query != nil || m.Method != nil || m.Addr != nil || m.Label != nil {
		return
	}
	for _, item := range items(find(r.rules[i].match, "bot")) {
		if word := strings.ToLower(item.text); r.searches(word) {
			r.warn(item, "use a limit, which answers 429, or answer: {status: 503}",
				"search engines drop pages that are answered with %d, and do not slow down; bot: %s holds for some",
				status, word)
			return
		}
	}
}

// warnBotLast warns of a last that never ends the walk, because no bot of its
// match can be verified.
func (r *reader) warnBotLast(i int) {
	if rules := r.file.Policy.Rules; !rules[i].Last || i == len(rules)-1 {
		return
	}
	if state := items(find(r.rules[i].match, "state")); state != nil &&
		!slices.ContainsFunc(state, func(n *node) bool { return n.text == fairshare.Verified.String() }) {
		r.warn(firstNode(find(r.rules[i].node, "last")), "remove it",
			"last has no effect: only a verified bot skips the rules below, and the match leaves verified bots out")
		return
	}
	values := items(find(r.rules[i].match, "bot"))
	for _, item := range values {
		word := strings.ToLower(item.text)
		if w, known := r.bots[word]; word != "forged" && (!known || w.verifiable) {
			return
		}
	}
	if len(values) > 0 {
		r.warn(firstNode(find(r.rules[i].node, "last"), values[0]), "remove it",
			"last has no effect: only a verified bot skips the rules below, and bot: %s is never verified",
			strings.ToLower(values[0].text))
	}
}

// warnByBot warns of a limit whose key by: bot has no effect on forged bots, or
// gives a whole bot no more than one person.
func (r *reader) warnByBot(i int) {
	rule := &r.file.Policy.Rules[i]
	n := slices.IndexFunc(rule.Limit.By, func(p fairshare.KeyPart) bool {
		return p.Kind == fairshare.ByBot || p.Kind == fairshare.ByOperator || p.Kind == fairshare.ByPurpose
	})
	if n < 0 {
		return
	}
	if rule.Limit.CrawlDelay { // it holds for bots only
		return
	}
	at, by := firstNode(find(r.rules[i].limit, "by"), r.rules[i].limit), rule.Limit.By[n]
	switch m := &rule.Match; {
	case !m.TestsBots():
		example := "known"
		if by.Kind == fairshare.ByPurpose {
			example = "ai"
		}
		r.warn(at, "match: {bot: "+example+"}, and a limit by addr for all others",
			"%s counts by %s but matches everybody: all addresses of a verified bot together get no more than one person",
			quote(rule.Name), by)
	case by.Kind != fairshare.ByBot:
	case len(m.Bot) == 1 && m.Bot[0] == "forged",
		m.State != nil && !slices.Contains(m.State, fairshare.Verified.String()):
		r.warn(at, "by: network, or by: user_agent for a fleet",
			"%s counts unverified bots by bot: only verified bots are counted that way, all others by address",
			quote(rule.Name))
	}
}
