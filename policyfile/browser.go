package policyfile

import (
	"strings"

	"fairshare"
	"fairshare/internal/prose"
)

// browserWords are the values of match: {browser: …}.
var browserWords = []string{fairshare.BrowserLikely.String(), fairshare.BrowserClaimed.String(),
	fairshare.BrowserContradicted.String()}

// browsers reads the values of browser.
func (r *reader) browsers(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "browser") {
		if word := r.choice(item, "browser", browserWords, map[string]string{
			"verified": "likely", "known": "likely", "real": "likely", "true": "likely", "unknown": "claimed",
			"forged": "contradicted", "fake": "contradicted",
		}); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// checkBrowsers reports conditions on browsers in permissions that hold for nobody.
func (r *reader) checkBrowsers() {
	for i := range r.file.Policy.Rules {
		at := r.rules[i]
		if at.builtIn {
			continue
		}
		r.checkBrowser(at.match, r.file.Policy.Rules[i].Action == fairshare.Allow)
		r.checkBrowser(find(find(at.node, "ban"), "unless"), true)
	}
}

// checkBrowser is checkBrowsers for one match. favorable says that it is part of a permission.
func (r *reader) checkBrowser(n *node, favorable bool) {
	if n == nil {
		return
	}
	for _, item := range items(find(n, "browser")) {
		if favorable && (item.text == browserWords[1] || item.text == browserWords[2]) {
			r.fault(item, "browser: likely, which costs the client real requests",
				"browser: %s never holds in a permission: any client can claim or contradict what it wants", item.text)
		}
	}
	for _, not := range items(find(n, "not")) {
		r.checkBrowser(not, !favorable)
	}
}

// warnBrowserBlock warns of a block of clients that contradict themselves. Some people do.
func (r *reader) warnBrowserBlock(i int) {
	rule := &r.file.Policy.Rules[i]
	if rule.Action != fairshare.Block || rule.DryRun {
		return
	}
	for _, item := range items(find(r.rules[i].match, "browser")) {
		switch item.text {
		case fairshare.BrowserContradicted.String():
			r.warn(item, "use a limit: it slows programs down and lets people read",
				"a block of browser: contradicted may hit people with privacy browsers, web views and old phones")
			return
		case fairshare.BrowserClaimed.String():
			r.warn(item, "use a limit: it slows programs down and lets people read",
				"a block of browser: claimed blocks each person's first visit: nobody is likely to be a browser before that")
			return
		}
	}
}

// readCount reads what counts as one request of a limit.
func readCount(r *reader, n *node, d *fairshare.Limit) {
	units := []string{fairshare.EachRequest.String(), fairshare.Pages.String()}
	word := r.choice(n, "count", units, map[string]string{"page": "pages", "request": "requests"})
	if word == units[fairshare.Pages] {
		d.Count = fairshare.Pages
	}
}

// pagesText says in a sentence what counts as a page, with a space before it.
func pagesText(l *fairshare.Limit) string {
	return " A page counts once with up to " + prose.Number(fairshare.PageParts) + " of its parts in " +
		FormatDuration(fairshare.PageTime) + ", so at most " + prose.Number(l.N*(1+fairshare.PageParts)) +
		" requests pass."
}

// UsesBrowsers reports whether a rule looks at Request.Browser.
func (f *File) UsesBrowsers() bool { return f.Policy.TestsBrowsers() }

// browserText describes the browsers for which a condition holds.
func browserText(m condition) string {
	var parts []string
	for _, word := range m.Browser {
		switch {
		case word == browserWords[0]:
			parts = append(parts, "that is likely a browser")
		case m.favorable:
		case word == browserWords[1]:
			parts = append(parts, "that claims to be a browser without signs of one")
		default:
			parts = append(parts, "that contradicts the browser that it claims to be")
		}
	}
	return "from a client " + strings.Join(parts, " or ")
}
