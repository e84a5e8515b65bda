package main

import (
	"fmt"
	"regexp"
	"strings"
)

// An avoided phrase is not ordinary technical English.
type avoided struct {
	pattern *regexp.Regexp
	unless  *regexp.Regexp // what it may be a part of; nil when it may not
	instead string
}

func avoid(pattern, instead string) avoided { return avoidUnless(pattern, "", instead) }

func avoidUnless(pattern, unless, instead string) avoided {
	one := avoided{pattern: regexp.MustCompile(`(?i)\b(` + pattern + `)\b`), instead: instead}
	if unless != "" {
		one.unless = regexp.MustCompile(`(?i)` + unless)
	}
	return one
}

// asking are verbs of clients; "who" before them stands for a client.
const asking = `asks|waits|knocks|comes|sends|pays|hangs|sees|reads|floods|hides|guesses|probes|looks|gets|goes|behaves|` +
	`has|is|was|does|needs|wants|uses|holds|may|can|says|claims|runs|takes|meets|opens|leaves|stays|ran|sent|asked|came|got`

// avoidedPhrases are those of the style guide, and others of their kind.
var avoidedPhrases = []avoided{
	avoid(`who(?:so)?ever|whomever`, `"a client that", "anybody"`),
	avoid(`anew`, `"again", "from zero", "newly"`),
	avoid(`beside`, `"next to", "in addition to"`),
	avoid(`dear|dearer|dearest|dearly`, `"expensive"`),
	avoid(`told`, `"reported", "informed"; "told apart" is "distinguished"`),
	avoidUnless(`\w+,? (?:is|are|was|were|be|being|been) no \w+`,
		`(?:there|here) (?:is|are|was|were|be|being|been) no |no (?:longer|more|less|fewer|larger|smaller|older|newer|later|better|worse|different)$`,
		`"is not a", "has no"`),
	avoid(`steered|steering`, `"user-triggered"`),
	avoid(`of late`, `"recently"`),
	avoid(`lately`, `"recently"`),
	avoid(`(?:to|for|of|by|from|with|and|or|than|else|otherwise|when|how|but|that|as|if|so|only) who (?:`+asking+`)`,
		`name the thing: "a client that"`),
	avoid(`(?:those|one|ones|he|she|they|them|all|any) who`,
		`name them: "clients that"`),
	avoid(`(?:know|knows|tell|tells|say|says|shows?|learn|learns|see|sees) who`, `name the thing: "which client"`),
	avoid(`knock|knocks|knocked|knocking`, `"connect", "request"`),
	avoid(`for ever|evermore|nevermore`, `"permanently", "never"`),
	avoid(`(?:turn|turns|turned|turning|sent|send|sends) away`, `"refuse", "reject"`),
	avoid(`heed|heeds|heeded|heeding`, `"obey", "follow"`),
	avoid(`lest`, `"so that … not"`),
	avoid(`reckon|reckons|reckoned`, `"count", "estimate"`),
	avoid(`(?:pass|passes|passed|get|gets|slip|slips) by`, `"evade", "bypass"`),
	avoid(`(?:let|lets|letting) by`, `"let pass"`),
	avoid(`the last word`, `"overrides"`),
	avoid(`for good`, `"permanently"`),
	avoidUnless(`no more`, `no more (?:than|\w+s)`, `"no longer", "not … any more"`),
	avoid(`what (?:is|was|goes) wrong with`, `"the errors of"`),
	avoid(`what (?:it|they|he|she|is|was|others) (?:asks|asked|ask|says|said|say|costs|cost|spent|spend|gets|got|owes|owed|told|meets|met)(?: for)?`,
		`name the thing: "the cost", "the request"`),
	avoidUnless(`stands? (?:in|with|beside|here|there|alone|at hand|aside)`, `stands? in for`,
		`"is in", "is written in"`),
	avoid(`lies (?:with|at hand)`, `"is"`),
	avoid(`spares?|sparing|spared`, `"exempts"`),
	avoid(`at hand|in hand`, `"available"`),
	avoid(`in vain`, `"without success"`),
	avoid(`seldom|oft|nought|naught|aught|ere|amid|amidst|unto|hither|thither|whither|whence|thence|henceforth|hitherto|heretofore|yonder|nigh|sundry|betimes|asunder|fain`,
		`a common word`),
	avoid(`ailing`, `"down", "failing"`),
	avoid(`such an? one`, `name the thing`),
	avoid(`of one'?s own`, `"own"`),
	avoid(`who (?:only )?(?:says? so|said so)`, `"that claim it"`),
	avoid(`(?:ban|bans|law|rule|rules|limit|policy|list|lists|log|answer|page) speaks?`, `things do not speak`),
	avoid(`speaks? (?:of|for|up)`, `"describes", "mentions"`),
	avoid(`has its say|have their say`, `things do not speak`),
	avoid(`to be had`, `"available"`),
	avoid(`makes? good|holds? good`, `"compensates", "is true"`),
	avoid(`give way|gives way`, `"is replaced", "yields"`),
	avoid(`in its stead|in their stead`, `"instead"`),
	avoid(`(?:is|are|was|were|be) (?:as good as|nothing but)`, `"is only"`),
	avoid(`hinders?|hindered`, `"prevents"`),
	avoid(`forgo|forgoes|forsake|bestow|bestows|dwell|dwells|behold|gainsay|befall|befalls|beget|begets`,
		`a common word`),
	avoid(`outlasts?`, `"lasts longer than"`),
	avoid(`overmuch`, `"too much"`),
	avoid(`gone? to waste|comes? to nothing|comes? to naught`, `"has no effect"`),
	avoid(`on the sly|by stealth`, `a common word`),
	avoid(`kindness|kindly|mercy|merciful`, `"permission", "exemption"`),
	avoid(`strangers?`, `"other clients", "unrelated clients"`),
	avoid(`honest|innocent`, `"legitimate"`),
	avoid(`taken for`, `"recognized as", "identified as"`),
}

// anyAvoided matches a text with at least one avoided phrase, faster than one
// phrase after the other.
var anyAvoided = func() *regexp.Regexp {
	var patterns []string
	for _, one := range avoidedPhrases {
		patterns = append(patterns, one.pattern.String())
	}
	return regexp.MustCompile(strings.Join(patterns, "|"))
}()

// findPhrases returns the avoided phrases of a sentence, each with what to
// write instead. Code in the sentence is not looked at.
func findPhrases(sentence string) []string {
	text := link.ReplaceAllString(codeAsWord(sentence), "$1")
	if !anyAvoided.MatchString(text) {
		return nil
	}
	var found []string
	for _, one := range avoidedPhrases {
		for at := 0; at < len(text); {
			match := one.pattern.FindStringSubmatchIndex(text[at:])
			if match == nil {
				break
			}
			from, to := at+match[2], at+match[3]
			at = to
			if one.unless != nil && one.unless.MatchString(text[from:min(to+12, len(text))]) &&
				strings.HasPrefix(text[from:], one.unless.FindString(text[from:])) {
				continue
			}
			if one.unless != nil && one.unless.MatchString(text[from:to]) {
				continue
			}
			found = append(found, fmt.Sprintf("%q: write %s", text[from:to], one.instead))
		}
	}
	return found
}
