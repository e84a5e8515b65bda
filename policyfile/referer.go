package policyfile

import "fairshare/internal/prose"

// refererWords are the values of match: {referer: …}.
var refererWords = []string{"none", "self", "own", "other"}

// referers reads the values of referer.
func (r *reader) referers(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "referer") {
		if word := r.choice(item, "referer", refererWords, map[string]string{
			"": "none", "empty": "none", "absent": "none", "missing": "none", "same": "own", "site": "own",
			"same-origin": "own", "internal": "own", "external": "other", "foreign": "other", "cross-site": "other",
		}); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// refererText describes the requests for which the words of a condition hold.
func refererText(words []string) string {
	var parts []string
	for _, word := range words {
		parts = append(parts, map[string]string{
			"none":  "without a referer",
			"self":  "with the requested URL as referer",
			"own":   "with a referer of this site",
			"other": "with a referer of another site",
		}[word])
	}
	return prose.List(parts, "or")
}
