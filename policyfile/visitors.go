package policyfile

import (
	"slices"

	"fairshare"
	"fairshare/internal/prose"
)

// Visitors sets how clients get and use the signed cookie of package visitor. The
// zero Visitors are the default.
type Visitors struct {
	Cookies    CookieTime
	SecretFile string // with the secrets that sign, see File.ResolvePath; "" means one in the state folder
	PerNetwork int    // new cookies of a network in an hour; 0 means visitor.DefaultPerNetwork

	MemberCookie string // the cookie by which the site says that a client is logged in; "" means none
	MemberSecret string // file with the secret that signs it
}

// A CookieTime says when a client gets a visitor's cookie.
type CookieTime uint8

const (
	// CookiesWhenBusy are set while the site is busy, and for a client near a limit.
	CookiesWhenBusy CookieTime = iota
	CookiesAlways              // with each page that no cache may store
	CookiesNever
)

var cookieTimes = []string{"busy", "always", "never"}

// maxPerNetwork is the largest value of per_network.
const maxPerNetwork = 1 << 20

const visitorsExample = "{cookies: always}"

func visitorKeys() []key[Visitors] {
	return []key[Visitors]{
		{"cookies", func(r *reader, n *node, v *Visitors) { v.Cookies = r.cookieTime(n, "cookies") }},
		{"secret_file", func(r *reader, n *node, v *Visitors) { v.SecretFile = r.fileName(n, "secret_file", "") }},
		{"per_network", func(r *reader, n *node, v *Visitors) {
			v.PerNetwork = int(r.integer(n, "per_network", 1, maxPerNetwork))
		}},
		{"member", func(r *reader, n *node, v *Visitors) {
			got := readMap(r, n, "member", memberExample, memberKeys(), v)
			if got == nil {
				return
			}
			for _, name := range []string{"cookie", "secret_file"} {
				if !got.has(name) {
					r.missing(n, "member: "+memberExample, "member: %s is needed", name)
				}
			}
		}},
	}
}

const memberExample = "{cookie: member, secret_file: member.key}"

func memberKeys() []key[Visitors] {
	return []key[Visitors]{
		{"cookie", func(r *reader, n *node, v *Visitors) {
			v.MemberCookie = r.line(n, "cookie")
			if v.MemberCookie != "" && !isToken(v.MemberCookie) {
				r.fault(n, "", "cookie: %s is not the name of a cookie", quote(v.MemberCookie))
			}
		}},
		{"secret_file", func(r *reader, n *node, v *Visitors) { v.MemberSecret = r.fileName(n, "secret_file", "") }},
	}
}

func readVisitors(r *reader, n *node, f *File) {
	f.Visitors = new(Visitors)
	if n.kind == scalarNode {
		f.Visitors.Cookies = r.cookieTime(n, "visitors")
		return
	}
	if got := readMap(r, n, "visitors", visitorsExample, visitorKeys(), f.Visitors); got != nil && len(n.entries) == 0 {
		r.fault(n, "visitors: "+visitorsExample, "visitors: the map is empty")
	}
}

func (r *reader) cookieTime(n *node, what string) CookieTime {
	word := r.choice(n, what, cookieTimes, map[string]string{"true": "always", "on": "always", "false": "never",
		"off": "never", "none": "never", "auto": "busy"})
	return CookieTime(max(slices.Index(cookieTimes, word), 0))
}

// byVisitor reports whether a key has a part visitor.
func byVisitor(by []fairshare.KeyPart) bool {
	return slices.ContainsFunc(by, func(part fairshare.KeyPart) bool { return part.Kind == fairshare.ByVisitor })
}

// CountsVisitors reports whether a limit or the share counts by visitor.
func (f *File) CountsVisitors() bool {
	return f.Share != nil && byVisitor(f.Share.By) || slices.ContainsFunc(f.Policy.Rules, func(r fairshare.Rule) bool {
		return r.Limit != nil && byVisitor(r.Limit.By)
	})
}

// checkVisitors reports rules that count by visitor in a policy whose clients never get a cookie.
func (r *reader) checkVisitors() {
	if v := r.file.Visitors; v == nil || v.Cookies != CookiesNever {
		return
	}
	for i := range r.file.Policy.Rules {
		if rule := &r.file.Policy.Rules[i]; rule.Limit != nil && byVisitor(rule.Limit.By) {
			r.fault(firstNode(find(r.rules[i].limit, "by"), r.rules[i].node), "visitors: busy, or by: addr",
				"by: visitor: clients never get a cookie, because of visitors: never")
		}
	}
}

// warnVisitors warns of a limit by visitor that nothing bounds: a client can come with the cookies that
// its network gets in an hour, and with a new address for each request.
func (r *reader) warnVisitors() {
	for i := range r.file.Policy.Rules {
		rule := &r.file.Policy.Rules[i]
		if rule.Limit == nil || !byVisitor(rule.Limit.By) || r.rules[i].builtIn {
			continue
		}
		bounded := slices.ContainsFunc(r.file.Policy.Rules, func(other fairshare.Rule) bool {
			return other.Limit != nil && other.Limit.Resource == rule.Limit.Resource && !other.DryRun &&
				byAddress(other.Limit.By)
		})
		if !bounded {
			r.warn(firstNode(find(r.rules[i].limit, "by"), r.rules[i].node), "add a wider limit by: network",
				"by: visitor: one client may come with many cookies, and no limit of %s by addr or network bounds them",
				rule.Limit.Resource)
		}
	}
}

// byAddress reports whether a key is only an address or a network.
func byAddress(by []fairshare.KeyPart) bool {
	return len(by) == 0 || len(by) == 1 && (by[0].Kind == fairshare.ByAddr || by[0].Kind == fairshare.ByNetwork)
}

// description describes when clients get cookies, and what else the visitors' settings say.
func (v *Visitors) description() string {
	text := ""
	switch v.Cookies {
	case CookiesNever:
		text = "clients get no cookie and are known by their addresses."
	case CookiesAlways:
		text = "a client gets a signed cookie with each page that no cache may store; it keeps its standing wherever it is."
	default:
		text = "a client gets a signed cookie while the site is busy or it is near a limit; it keeps its standing wherever it is."
	}
	if v.PerNetwork > 0 {
		text += " A network gets " + prose.Plural(int64(v.PerNetwork), "new cookie") + " an hour."
	}
	if v.MemberCookie != "" {
		text += " Clients with a valid cookie " + printable(v.MemberCookie) + " are members: they come first."
	}
	return text
}
