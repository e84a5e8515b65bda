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

// Sentence says in plain words what a rule of the policy does, without a line
// end.
func (f *File) Sentence(rule *fairshare.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", printable(rule.Name))
	request := "a request" + matchWords(testOf(rule))
	if request == "a request" {
		request = "every request"
	}
	switch {
	case rule.Limit != nil:
		f.limitSentence(&b, rule)
	case rule.Action == fairshare.Allow:
		fmt.Fprintf(&b, "%s is allowed; the rules below are skipped.", request)
	default:
		fmt.Fprintf(&b, "%s is blocked with %s.", request, answerWords(rule, 403))
	}
	if rule.DryRun {
		b.WriteString(" Dry run: it is reported, and nothing is enforced.")
	}
	return b.String()
}

func (f *File) limitSentence(b *strings.Builder, rule *fairshare.Rule) {
	lim := rule.Limit
	asker, asked, but := askerWords(testOf(rule)), askedWords(&rule.Match), butWords(testOf(rule))
	who := keyWords(lim.By) + asker
	answers, work := "", ""
	if asked != "" {
		answers, work = " to requests"+asked, " for requests"+asked
	}
	f.allowance(b, lim, who, asked, answers, work)
	if but != "" {
		b.WriteString("," + strings.Replace(but, "but not", "not counting", 1))
	}
	switch {
	case lim.Newcomers == nil:
	case lim.Newcomers.N == 0:
		b.WriteString("; beyond that, only clients with standing pass")
	default:
		b.WriteString("; beyond that, clients with standing pass, and ")
		f.allowance(b, lim.Newcomers, "each newcomer (by addr)", "", "", "")
	}
	fmt.Fprintf(b, "; then %s.", answerWords(rule, 429))
	if !rule.Refund.Empty() {
		fmt.Fprintf(b, " Answers %s do not count.", statusWords(rule.Refund))
	}
	if rule.Ban != nil {
		banSentence(b, rule)
	}
	if rule.Last && rule.Match.Bot != nil {
		b.WriteString(" For a verified one, the rules below are skipped.")
	} else if rule.Last {
		b.WriteString(" The rules below are skipped.")
	}
}

// allowance says how much of what a limit allows.
func (f *File) allowance(b *strings.Builder, lim *fairshare.Limit, who, asked, answers, work string) {
	per := " in " + FormatDuration(lim.Window)
	switch lim.Resource {
	case fairshare.Requests:
		fmt.Fprintf(b, "%s may send %s%s%s", who, prose.Plural(lim.N, "request"), asked, per)
	case fairshare.Concurrent:
		fmt.Fprintf(b, "%s may have %s%s in progress", who, prose.Plural(lim.N, "request"), asked)
	case fairshare.Bytes:
		fmt.Fprintf(b, "%s may get %s in answers%s%s", who, FormatSize(lim.N), answers, per)
	case fairshare.Errors:
		statuses := "4xx"
		if !lim.Statuses.Empty() {
			statuses = statusWords(lim.Statuses)
		}
		fmt.Fprintf(b, "%s may get %s %s%s%s", who, prose.Plural(lim.N, "answer"), statuses, answers, per)
	case fairshare.CPU:
		if share := f.percents[lim]; share != "" {
			fmt.Fprintf(b, "%s may use %s of the CPU of %s%s over %s (%s)", who, share, coreWords(f.cores), work,
				FormatDuration(lim.Window), formatMicros(lim.N))
		} else {
			fmt.Fprintf(b, "%s may use %s of CPU time%s%s", who, formatMicros(lim.N), work, per)
		}
	case fairshare.Time:
		if share := f.percents[lim]; share != "" {
			fmt.Fprintf(b, "%s may use the upstream%s for %s of %s (%s)", who, work, share,
				FormatDuration(lim.Window), formatMicros(lim.N))
		} else {
			fmt.Fprintf(b, "%s may use the upstream%s for %s%s", who, work, formatMicros(lim.N), per)
		}
	case fairshare.Cost:
		fmt.Fprintf(b, "%s may cost %s%s%s", who, prose.Plural(lim.N, "unit"), work, per)
	}
	switch {
	case lim.Algorithm == fairshare.GCRA && lim.Burst > 0:
		fmt.Fprintf(b, ", spread evenly, %s at once", amountWords(lim.Resource, lim.Burst))
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
	if ban.Growth > 1 {
		most := "24h"
		if ban.Max > 0 {
			most = FormatDuration(ban.Max)
		} else if ban.For > defaultBanMax {
			most = FormatDuration(ban.For)
		}
		fmt.Fprintf(b, ", each time %s times as long, up to %s", strconv.FormatFloat(ban.Growth, 'g', -1, 64), most)
	}
	if ban.All && matchWords(testOf(rule)) != "" {
		b.WriteString(", from everything")
	}
	if ban.Unless != nil {
		fmt.Fprintf(b, ", except requests%s", matchWords(test{ban.Unless, true}))
	}
	b.WriteString(".")
}

// defaultBanMax is where the growth of a ban ends that says nothing of it.
const defaultBanMax = 24 * time.Hour

// answerWords tells what a refused or blocked client gets.
func answerWords(rule *fairshare.Rule, status int) string {
	a := rule.Answer
	if a == nil {
		return strconv.Itoa(status)
	}
	if a.Redirect != "" {
		status = 303
	}
	if a.Status != 0 {
		status = a.Status
	}
	s := strconv.Itoa(status)
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
	return s
}

// amountWords writes so much of a resource.
func amountWords(res fairshare.Resource, n int64) string {
	switch res {
	case fairshare.Bytes:
		return FormatSize(n)
	case fairshare.CPU, fairshare.Time:
		return formatMicros(n)
	}
	return strconv.FormatInt(n, 10)
}

// keyWords tells who is counted as one.
func keyWords(by []fairshare.KeyPart) string {
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
			return "a network" + lengthWords(by[0])
		case fairshare.ByASN:
			return "all addresses of one owner (by asn)"
		case fairshare.ByBot:
			return "a verified bot as a whole, or a client (by addr)"
		}
	}
	parts := make([]string, len(by))
	for i, part := range by {
		parts[i] = part.String()
	}
	return fmt.Sprintf("a client (by %s)", strings.Join(parts, " and "))
}

// lengthWords tells which prefix lengths a network has, if they are not the
// usual ones.
func lengthWords(part fairshare.KeyPart) string {
	if part == (fairshare.KeyPart{Kind: fairshare.ByNetwork}) {
		return ""
	}
	bits4, bits6 := part.PrefixLengths()
	return fmt.Sprintf(" (IPv4 /%d, IPv6 /%d)", bits4, bits6)
}

// matchWords tells which requests a match holds for, with a space before it;
// "" for all.
func matchWords(t test) string { return askerWords(t) + askedWords(t.Match) + butWords(t) }

// askerWords tells who must ask.
func askerWords(m test) string {
	var parts []string
	if set, ok := m.Addr.(*AddrSet); ok {
		parts = append(parts, "from "+addrWords(set))
	} else if m.Addr != nil {
		parts = append(parts, "from certain addresses")
	}
	if m.Bot != nil {
		parts = append(parts, "of "+botPhrase(m))
	}
	if m.ASN != nil {
		parts = append(parts, "from the owner "+oneOf(m.ASN))
	}
	if m.Label != nil {
		parts = append(parts, labelWords(m.Label))
	}
	if m.Hostname != nil {
		parts = append(parts, "from hostname "+oneOf(m.Hostname))
	}
	if m.Listed != nil {
		parts = append(parts, "listed by "+listedWords(m.Listed))
	}
	if m.Seen != nil {
		parts = append(parts, "from a client that has seen "+oneOf(m.Seen))
	}
	if m.Cookie != nil {
		parts = append(parts, cookieWords(m.Cookie))
	}
	if m.UserAgent != nil {
		parts = append(parts, "with user agent "+containing(m.UserAgent))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		parts = append(parts, "with header "+printable(name)+" "+containing(m.Header[name]))
	}
	return spaced(parts)
}

// askedWords tells what must be asked for.
func askedWords(m *fairshare.Match) string {
	var parts []string
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
		what := "query " + printable(name)
		if name == "*" {
			what = "any query parameter"
		}
		parts = append(parts, "with "+what+" "+valueWords(m.Query[name]))
	}
	return spaced(parts)
}

// butWords tells what must not be.
func butWords(t test) string {
	var parts []string
	for _, not := range t.nots() {
		s := "those" + askerWords(not) + askedWords(not.Match)
		if but := butWords(not); but != "" {
			s += " (" + but[1:] + ")"
		}
		parts = append(parts, s)
	}
	if parts == nil {
		return ""
	}
	return " but not " + prose.List(parts, "or")
}

// botPhrase names bots as they fit there.
func botPhrase(t test) string {
	var states, names []string
	for _, word := range t.Bot {
		switch {
		case word == "known" && !t.kind:
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
	if names != nil && t.kind {
		states = append(states, "a verified bot ("+oneOf(names)+")")
	} else if names != nil {
		states = append(states, "a bot, verified or not ("+oneOf(names)+")")
	}
	return prose.List(states, "or")
}

// listedWords names DNS lists and which of their answers count.
func listedWords(listings []fairshare.Listing) string {
	var list []string
	for i, l := range listings {
		if i == maxWords {
			list = append(list, others(len(listings)-i))
			break
		}
		s := printable(l.List)
		if l.Codes != nil {
			var codes []string
			for _, p := range l.Codes {
				codes = append(codes, prefixWords(p))
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

func cookieWords(names []string) string {
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

func labelWords(names []string) string {
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

// valueWords is containing for query: "*" is any value, and an absent
// parameter has none.
func valueWords(texts []string) string {
	switch {
	case slices.Contains(texts, "*"):
		return "given"
	case len(texts) == 1 && texts[0] == "":
		return "empty"
	}
	return "containing " + oneOf(texts)
}

// maxWords is how many texts of a field a sentence shows.
const maxWords = 5

func oneOf(texts []string) string {
	var list []string
	for _, s := range texts[:min(len(texts), maxWords)] {
		switch {
		case s == "":
			list = append(list, "nothing")
		case strings.HasPrefix(s, "re:"):
			list = append(list, "regexp "+printable(s[len("re:"):]))
		default:
			list = append(list, printable(s))
		}
	}
	if more := len(texts) - maxWords; more > 0 {
		return fmt.Sprintf("%s or %s", strings.Join(list, ", "), others(more))
	}
	return prose.List(list, "or")
}

func addrWords(set *AddrSet) string {
	var texts []string
	for _, name := range set.names {
		texts = append(texts, "list "+name)
	}
	for _, p := range set.prefixes {
		texts = append(texts, prefixWords(p))
	}
	return oneOf(texts)
}

func prefixWords(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// statusWords names codes, whole classes as 4xx.
func statusWords(set fairshare.StatusSet) string {
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
