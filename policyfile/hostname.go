package policyfile

import (
	"fmt"
	"slices"
	"strings"
)

// hostnames reads patterns of hostnames.
func (r *reader) hostnames(n *node) []string {
	list := []string{}
	for _, item := range r.list(n, "hostname") {
		s, ok := r.pattern(item, "hostname")
		if !ok {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(s, "."))
		hint := ""
		switch {
		case isRegexp(s):
			list = append(list, s)
			continue
		case strings.Contains(s, "://"):
			_, rest, _ := strings.Cut(s, "://")
			rest, _, _ = strings.Cut(rest, "/")
			hint = "hostname: " + shorten(rest)
		case looksLikeAddr(s):
			hint = "addr: " + shorten(s)
		case strings.HasPrefix(s, "."):
			hint = fmt.Sprintf("%q matches all names below it", "*"+shorten(s))
		case strings.ContainsAny(s, ", "):
			hint = "write several values in brackets: [a, b]"
		}
		if hint != "" || !hostName(strings.ReplaceAll(name, "*", "x")) {
			r.fault(item, hint, "hostname: %s is not a host name", quote(s))
			continue
		}
		list = append(list, name)
	}
	return list
}

// rentedDomains are domains of hosting companies: anybody can rent an address with
// such a hostname.
var rentedDomains = []string{"googleusercontent.com", "1e100.net", "amazonaws.com", "your-server.de", "linode.com",
	"vultr.com", "digitalocean.com", "cloudapp.azure.com"}

// crawlerDomains maps domains of crawlers to the bot that they verify.
var crawlerDomains = map[string]string{
	"googlebot.com": "googlebot", "google.com": "googlebot", "search.msn.com": "bingbot",
	"applebot.apple.com": "applebot",
	"yandex.com":         "yandexbot", "yandex.ru": "yandexbot", "yandex.net": "yandexbot",
	"crawl.baidu.com": "baiduspider",
	"crawl.baidu.jp":  "baiduspider",
}

// warnHostnames warns of a permission by hostname that other people can get: a
// pattern that matches other domains, or names that anybody can rent.
func (r *reader) warnHostnames(n *node) {
	for _, item := range items(find(n, "hostname")) {
		s := strings.ToLower(item.text)
		if isRegexp(s) {
			if !strings.HasSuffix(s, "$") && !strings.HasSuffix(s, `\z`) {
				r.warn(item, "end it with $",
					`hostname: %s does not end with $: it matches names below other domains too, such as example.org.example.net`,
					quote(item.text))
			}
			continue
		}
		domain := strings.TrimLeft(s, "*.")
		below := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
		bot := crawlerDomains[domain]
		switch {
		case domain == "":
			r.warn(item, "", "hostname: %s matches every address that has a name", quote(item.text))
		case bot != "":
			r.warn(item, "bot: "+bot,
				"hostname: %s matches all names of a domain; a bot is verified only by the names of its crawlers",
				quote(item.text))
		case slices.ContainsFunc(rentedDomains, below):
			r.warn(item, "", "hostname: %s: anybody can rent a server with such a name", quote(item.text))
		case strings.HasPrefix(s, "*") && !strings.HasPrefix(s, "*."):
			r.warn(item, fmt.Sprintf("%q", "*."+domain), "hostname: %s also matches other domains with the same end",
				quote(item.text))
		case strings.HasSuffix(s, "*"):
			r.warn(item, "", "hostname: %s also matches other domains with the same beginning", quote(item.text))
		}
	}
}
