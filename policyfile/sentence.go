package policyfile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// Sentence describes in one line what a rule of the policy does, without a line
// end.
func (f *File) Sentence(rule *fairshare.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", printable(rule.Name))
	request := "a request" + matchText(conditionOf(rule))
	if request == "a request" {
		request = "every request"
	}
	switch {
	case rule.Limit != nil:
		f.limitSentence(&b, rule)
	case rule.Action == fairshare.Allow:
		fmt.Fprintf(&b, "%s is allowed; the rules below are skipped.", request)
	default:
		fmt.Fprintf(&b, "%s is blocked with %s.", request, answerText(rule, "403"))
		if rule.Ban != nil {
			blockBanSentence(&b, rule)
		}
	}
	if rule.DryRun {
		b.WriteString(" Dry run: it is reported, and nothing is enforced.")
	}
	return b.String()
}

func (f *File) limitSentence(b *strings.Builder, rule *fairshare.Rule) {
	lim := rule.Limit
	client := keyText(lim.By) + clientText(conditionOf(rule))
	target, except := targetText(&rule.Match), exceptionText(conditionOf(rule))
	if lim.When == fairshare.Busy {
		b.WriteString("while the upstream is busy, ")
	}
	f.allowance(b, lim, client, target)
	if except != "" {
		b.WriteString("," + strings.Replace(except, "but not", "not counting", 1))
	}
	switch {
	case lim.Newcomers == nil:
	case lim.Newcomers.N == 0:
		b.WriteString("; beyond that, only clients with standing pass")
	default:
		b.WriteString("; beyond that, clients with standing pass, and ")
		f.allowance(b, lim.Newcomers, "each newcomer (by addr)", "")
	}
	switch {
	case lim.Resource == fairshare.Requests && lim.N == 0:
		fmt.Fprintf(b, "; the answer is %s.", answerText(rule, "429"))
	case lim.Distinct != fairshare.EveryRequest:
		fmt.Fprintf(b, "; then %s, except for the same %s again.", answerText(rule, "429"), lim.Distinct)
	default:
		fmt.Fprintf(b, "; then %s.", answerText(rule, "429"))
	}
	if lim.CrawlDelay {
		b.WriteString(" Without a delay for a bot, the limit does not hold.")
	}
	if lim.Count == fairshare.Pages {
		b.WriteString(pagesText(lim))
	}
	if !rule.Refund.Empty() {
		fmt.Fprintf(b, " Answers %s do not count.", statusText(rule.Refund))
	}
	if rule.Ban != nil {
		banSentence(b, rule)
	}
	switch {
	case !rule.Last || rule.DryRun:
	case rule.Match.TestsBots():
		b.WriteString(" For a verified one, the rules below are skipped.")
	default:
		b.WriteString(" The rules below are skipped.")
	}
}

// allowance describes how much a limit allows a client. target describes the
// requests that count, with a space before it; "" means all.
func (f *File) allowance(b *strings.Builder, lim *fairshare.Limit, client, target string) {
	per := " in " + FormatDuration(lim.Window)
	answers, work := "", ""
	if lim.CrawlDelay {
		fmt.Fprintf(b, "%s may send one request%s in each crawl delay of robots.txt, %s at once", client, target,
			prose.Number(lim.Burst))
		return
	}
	if target != "" {
		answers, work = " to requests"+target, " for requests"+target
	}
	switch lim.Resource {
	case fairshare.Requests:
		verb, unit := "send", "request"
		if lim.Count == fairshare.Pages {
			verb, unit = "open", "page"
		}
		switch {
		case lim.N == 0:
			fmt.Fprintf(b, "%s may not %s %ss%s", client, verb, unit, target)
		case lim.Distinct == fairshare.DistinctPaths && lim.Count == fairshare.Pages:
			fmt.Fprintf(b, "%s may open %s%s%s", client, prose.Plural(lim.N, "different page"), target, per)
		case lim.Distinct == fairshare.DistinctPaths:
			fmt.Fprintf(b, "%s may send requests%s for %s%s", client, target,
				prose.Plural(lim.N, "different path"), per)
		case lim.Distinct == fairshare.DistinctQueries:
			fmt.Fprintf(b, "%s may %s %ss%s for %s with different queries%s", client, verb, unit, target,
				prose.Plural(lim.N, "path"), per)
		default:
			fmt.Fprintf(b, "%s may %s %s%s%s", client, verb, prose.Plural(lim.N, unit), target, per)
		}
	case fairshare.Concurrent:
		fmt.Fprintf(b, "%s may have %s%s in progress", client, prose.Plural(lim.N, "request"), target)
	case fairshare.Bytes:
		fmt.Fprintf(b, "%s may get %s in answers%s%s", client, FormatSize(lim.N), answers, per)
	case fairshare.Errors:
		statuses := "4xx"
		if !lim.Statuses.Empty() {
			statuses = statusText(lim.Statuses)
		}
		fmt.Fprintf(b, "%s may get %s %s%s%s", client, prose.Plural(lim.N, "answer"), statuses, answers, per)
	case fairshare.Failures:
		fmt.Fprintf(b, "%s may fail in %s%s%s", client, prose.Plural(lim.N, "attempt"), target, per)
	case fairshare.CPU:
		if share := f.percents[lim]; share != "" {
			fmt.Fprintf(b, "%s may use %s of the CPU of %s%s over %s (%s)", client, share, coresText(f.cores), work,
				FormatDuration(lim.Window), formatMicros(lim.N))
		} else {
			fmt.Fprintf(b, "%s may use %s of CPU time%s%s", client, formatMicros(lim.N), work, per)
		}
	case fairshare.Time:
		if share := f.percents[lim]; share != "" {
			fmt.Fprintf(b, "%s may use the upstream%s for %s of %s (%s)", client, work, share,
				FormatDuration(lim.Window), formatMicros(lim.N))
		} else {
			fmt.Fprintf(b, "%s may use the upstream%s for %s%s", client, work, formatMicros(lim.N), per)
		}
	case fairshare.Cost:
		fmt.Fprintf(b, "%s may cost %s%s%s", client, prose.Plural(lim.N, "unit"), work, per)
	}
	switch {
	case lim.Algorithm == fairshare.GCRA && lim.Burst > 0:
		fmt.Fprintf(b, ", spread evenly, %s at once", amountText(lim.Resource, lim.Burst))
	case lim.Algorithm == fairshare.GCRA:
		b.WriteString(", spread evenly")
	case lim.Algorithm == fairshare.Quiet:
		fmt.Fprintf(b, ", and more only after a pause of %s", FormatDuration(lim.Window))
	}
}

func banSentence(b *strings.Builder, rule *fairshare.Rule) {
	ban := rule.Ban
	within := "10m"
	if ban.Within > 0 {
		within = FormatDuration(ban.Within)
	}
	refusals := "refusals"
	if ban.After == 1 {
		refusals = "refusal"
	}
	fmt.Fprintf(b, " %d %s in %s ban it for %s", ban.After, refusals, within, FormatDuration(ban.For))
	banTerms(b, rule)
}

// blockBanSentence describes the ban of a block.
func blockBanSentence(b *strings.Builder, rule *fairshare.Rule) {
	client := keyText([]fairshare.KeyPart{{Kind: rule.BanKind()}})
	if ban := rule.Ban; ban.After == 1 {
		fmt.Fprintf(b, " One such request bans %s for %s", client, FormatDuration(ban.For))
	} else {
		within := "10m"
		if ban.Within > 0 {
			within = FormatDuration(ban.Within)
		}
		fmt.Fprintf(b, " %d such requests in %s ban %s for %s", ban.After, within, client, FormatDuration(ban.For))
	}
	banTerms(b, rule)
	b.WriteString(" Requests that another site, a sent link or a prefetch may have caused do not count.")
}

// banTerms describes the terms of a ban after its first length.
func banTerms(b *strings.Builder, rule *fairshare.Rule) {
	ban := rule.Ban
	if ban.Growth > 1 {
		most := "24h"
		if ban.Max > 0 {
			most = FormatDuration(ban.Max)
		} else if ban.For > defaultBanMax {
			most = FormatDuration(ban.For)
		}
		fmt.Fprintf(b, ", each time %s times as long, up to %s", strconv.FormatFloat(ban.Growth, 'g', -1, 64), most)
	}
	if ban.All && matchText(conditionOf(rule)) != "" {
		b.WriteString(", from everything")
	}
	if ban.Unless != nil {
		fmt.Fprintf(b, ", except requests%s", matchText(condition{ban.Unless, true}))
	}
	b.WriteString(".")
}

// defaultBanMax is the longest ban with growth if the policy does not set max.
const defaultBanMax = 24 * time.Hour

// answerText describes the answer to a refused or blocked client.
func answerText(rule *fairshare.Rule, usual string) string {
	a, s := rule.Answer, usual
	if a == nil {
		return s
	}
	if a.Redirect != "" {
		s = "303"
	}
	if a.Status != 0 {
		s = strconv.Itoa(a.Status)
	}
	if a.Redirect != "" {
		s += " to " + printable(a.Redirect)
	}
	switch {
	case a.Body != "":
		s += ", with a custom text"
	case a.Empty:
		s += ", with an empty body"
	}
	switch {
	case a.RetryAfter < 0:
		s += ", without Retry-After"
	case a.RetryAfter > 0:
		s += ", Retry-After " + FormatDuration(a.RetryAfter)
	}
	if a.Header != nil {
		s += ", with " + prose.List(slices.Sorted(maps.Keys(a.Header)), "and")
	}
	return s
}

// amountText returns an amount of a resource.
func amountText(res fairshare.Resource, n int64) string {
	switch res {
	case fairshare.Bytes:
		return FormatSize(n)
	case fairshare.CPU, fairshare.Time:
		return formatMicros(n)
	}
	return strconv.FormatInt(n, 10)
}

// keyText describes the clients that have one key.
func keyText(by []fairshare.KeyPart) string {
	if len(by) == 0 {
		by = []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	}
	if len(by) == 1 {
		switch by[0].Kind {
		case fairshare.ByEveryone:
			return "all clients together"
		case fairshare.ByAddr:
			return "a client (by addr)"
		case fairshare.ByNetwork:
			return "a network" + lengthText(by[0])
		case fairshare.ByASN:
			return "all addresses of one owner (by asn)"
		case fairshare.ByVisitor:
			return "a visitor with a valid cookie of fairshare, or a client (by addr)"
		case fairshare.ByFleet:
			return "a fleet as a whole, or a client (by addr)"
		case fairshare.ByBot:
			return "a verified bot as a whole, or a client (by addr)"
		case fairshare.ByOperator:
			return "an operator of bots (unverified claims apart)"
		case fairshare.ByPurpose:
			return "a purpose of AI bots (unverified claims apart)"
		}
	}
	if len(by) == 2 && by[0].Kind == fairshare.ByOperator && by[1].Kind == fairshare.ByPurpose {
		return "an operator of AI bots for each purpose (unverified claims apart)"
	}
	parts := make([]string, len(by))
	for i, part := range by {
		parts[i] = part.String()
	}
	return fmt.Sprintf("a client (by %s)", strings.Join(parts, " and "))
}

// lengthText returns the prefix lengths of a network; "" for the default lengths.
func lengthText(part fairshare.KeyPart) string {
	if part == (fairshare.KeyPart{Kind: fairshare.ByNetwork}) {
		return ""
	}
	bits4, bits6 := part.PrefixLengths()
	return fmt.Sprintf(" (IPv4 /%d, IPv6 /%d)", bits4, bits6)
}

// matchText describes the requests for which a match holds, with a space before it;
// "" means all.
func matchText(t condition) string { return clientText(t) + targetText(t.Match) + exceptionText(t) }

// clientText describes the conditions on the client, with a space before them.
func clientText(m condition) string {
	var parts []string
	if set, ok := m.Addr.(*AddrSet); ok {
		parts = append(parts, "from "+addrText(set))
	} else if m.Addr != nil {
		parts = append(parts, "from certain addresses")
	}
	if m.TestsBots() {
		parts = append(parts, "of "+botPhrase(m))
	}
	if m.ASN != nil {
		parts = append(parts, "from the owner "+oneOf(m.ASN))
	}
	if m.Browser != nil {
		parts = append(parts, browserText(m))
	}
	if m.Robots != nil {
		parts = append(parts, robotsText(m))
	}
	if m.Label != nil {
		parts = append(parts, labelText(m.Label))
	}
	if m.Hostname != nil {
		parts = append(parts, "from hostname "+oneOf(m.Hostname))
	}
	if m.Listed != nil {
		parts = append(parts, "listed by "+listedText(m.Listed))
	}
	if m.Seen != nil {
		parts = append(parts, "from a client that has seen "+oneOf(m.Seen))
	}
	if m.Cookie != nil {
		parts = append(parts, cookieText(m.Cookie))
	}
	if m.Referer != nil {
		parts = append(parts, refererText(m.Referer))
	}
	if m.UserAgent != nil {
		parts = append(parts, "with user agent "+containing(m.UserAgent))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		parts = append(parts, "with header "+printable(name)+" "+containing(m.Header[name]))
	}
	return spaced(parts)
}

// targetText describes the conditions on what is requested, with a space before
// them.
func targetText(m *fairshare.Match) string {
	var parts []string
	if m.Attempt != nil {
		parts = append(parts, attemptText(m.Attempt))
	}
	if m.Method != nil {
		parts = append(parts, "with method "+oneOf(m.Method))
	}
	if m.Host != nil {
		parts = append(parts, "to host "+oneOf(m.Host))
	}
	if m.Path != nil {
		parts = append(parts, "to path "+oneOf(m.Path))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Query)) {
		parameter := "query " + printable(name)
		if name == "*" {
			parameter = "any query parameter"
		}
		parts = append(parts, "with "+parameter+" "+valueText(m.Query[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Form)) {
		field := "form field " + printable(name)
		if name == "*" {
			field = "any form field"
		}
		parts = append(parts, "with "+field+" "+valueText(m.Form[name]))
	}
	return spaced(parts)
}

// exceptionText describes the conditions of not.
func exceptionText(t condition) string {
	var parts []string
	for _, not := range t.exceptions() {
		s := "those" + clientText(not) + targetText(not.Match)
		if inner := exceptionText(not); inner != "" {
			s += " (" + inner[1:] + ")"
		}
		parts = append(parts, s)
	}
	if parts == nil {
		return ""
	}
	return " but not " + prose.List(parts, "or")
}

// botPhrase describes the bots for which a condition holds.
func botPhrase(t condition) string {
	var states, names []string
	for _, word := range t.Bot {
		switch {
		case word == "known" && !t.favorable:
			states = append(states, "any bot")
		case word == "known", word == "verified":
			states = append(states, "a verified bot")
		case word == "forged":
			states = append(states, "a forged bot")
		default:
			names = append(names, word)
		}
	}
	states = slices.Compact(states)
	noun, state := "a bot", ", verified or not"
	if t.Operator != nil {
		noun += " of the operator " + oneOf(t.Operator)
	}
	if t.State != nil {
		var list []string
		for _, word := range t.State {
			list = append(list, map[string]string{"verified": "is verified", "pending": "is not verified yet",
				"forged": "is forged", "known": "cannot be verified"}[word])
		}
		state = " that " + prose.List(list, "or")
	}
	if noun += state; t.favorable {
		noun = "a verified" + strings.TrimSuffix(strings.TrimPrefix(noun, "a"), state)
	}
	switch {
	case names != nil:
		states = append(states, noun+" ("+oneOf(names)+")")
	case t.Bot == nil:
		return noun
	case t.State != nil || t.Operator != nil: // of any bot, a verified or a forged one
		return prose.List(states, "or") + ", and of " + noun
	}
	return prose.List(states, "or")
}

// listedText describes DNS lists and their answers that count.
func listedText(listings []fairshare.Listing) string {
	var list []string
	for i, l := range listings {
		if i == maxTexts {
			list = append(list, others(len(listings)-i))
			break
		}
		s := printable(l.List)
		if l.Codes != nil {
			var codes []string
			for _, p := range l.Codes {
				codes = append(codes, prefixText(p))
			}
			s += " as " + oneOf(codes)
		}
		var types []string
		for _, name := range []string{"suspicious", "harvester", "spammer"} {
			if l.Types&listingBits[name] != 0 {
				types = append(types, name)
			}
		}
		if types != nil {
			s += " as " + oneOf(types)
		}
		if l.Threat > 0 {
			s += fmt.Sprintf(" with threat %d or more", l.Threat)
		}
		if l.Days > 0 {
			s += fmt.Sprintf(" in the last %s", FormatDuration(time.Duration(l.Days)*24*time.Hour))
		}
		if l.Wait > 0 {
			s += fmt.Sprintf(" (a request may wait %s for the answer)", FormatDuration(l.Wait))
		}
		list = append(list, s)
	}
	return prose.List(list, "or")
}

func spaced(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, " ")
}

func cookieText(names []string) string {
	if len(names) == 1 {
		switch names[0] {
		case "none":
			return "without a cookie"
		case "any":
			return "with a cookie"
		}
	}
	return "with cookie " + oneOf(names)
}

func labelText(names []string) string {
	if len(names) == 1 && names[0] == anyLabel {
		return "with a label"
	}
	return "with the label " + oneOf(names)
}

func containing(texts []string) string {
	if len(texts) == 1 && texts[0] == "" {
		return "empty or absent"
	}
	return "containing " + oneOf(texts)
}

// valueText is containing for query: "*" means any value, and an absent parameter
// has no value.
func valueText(texts []string) string {
	switch {
	case slices.Contains(texts, "*"):
		return "given"
	case len(texts) == 1 && texts[0] == "":
		return "empty"
	}
	return "containing " + oneOf(texts)
}

// maxTexts is the number of values of a field that a sentence shows.
const maxTexts = 5

func oneOf(texts []string) string {
	var list []string
	for _, s := range texts[:min(len(texts), maxTexts)] {
		switch {
		case s == "":
			list = append(list, "nothing")
		case strings.HasPrefix(s, "re:"):
			list = append(list, "regexp "+printable(s[len("re:"):]))
		default:
			list = append(list, printable(s))
		}
	}
	if more := len(texts) - maxTexts; more > 0 {
		return fmt.Sprintf("%s or %s", strings.Join(list, ", "), others(more))
	}
	return prose.List(list, "or")
}

func addrText(set *AddrSet) string {
	var texts []string
	for _, name := range set.names {
		texts = append(texts, "list "+name)
	}
	for _, p := range set.prefixes {
		texts = append(texts, prefixText(p))
	}
	return oneOf(texts)
}

func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// statusText lists status codes; a whole class is written as 4xx.
func statusText(set fairshare.StatusSet) string {
	var list []string
	for class := 100; class < 600; class += 100 {
		var codes []string
		for code := class; code < class+100; code++ {
			if set.Has(code) {
				codes = append(codes, strconv.Itoa(code))
			}
		}
		if len(codes) == 100 {
			codes = []string{fmt.Sprintf("%dxx", class/100)}
		}
		list = append(list, codes...)
	}
	if len(list) > 8 {
		list = append(list[:7], others(len(list)-7))
	}
	return prose.List(list, "and")
}

func others(n int) string {
	if n == 1 {
		return "1 other"
	}
	return fmt.Sprintf("%d others", n)
}
