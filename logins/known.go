package logins

import (
	"bytes"
	"strings"

	"fairshare"
)

// A style says how a form answers attempts that fail.
type style uint8

const (
	ignored   style = iota
	candidate       // not known to be a form; the answers are watched
	learned         // learned from the answers
	plain           // a login by its name; the answers tell the rest
	redirects       // a success is redirected: every other answer is a failure
	wordpress       // the same, and a cookie proves the success
	rpc             // XML-RPC: all answers are 200
	basic           // Basic credentials on any path
	open            // a form that unknown clients may send
)

// A known is what a path is known as.
type known struct {
	style   style
	kind    fairshare.Attempt
	name    string
	variant bool // another action of the same script
	both    bool // it redirects failed attempts, too: a status tells nothing
	byQuery bool // the query says that it is a login, and the path may be any
}

const maxPath = 256

func login(s style) known { return known{style: s, kind: fairshare.LoginAttempt} }
func loginRedirectsBoth() known {
	return known{style: redirects, kind: fairshare.LoginAttempt, both: true}
}
func comment() known { return known{style: open, kind: fairshare.CommentAttempt} }

// names has the last segments of the paths of logins and forms, in lower case.
var names = map[string]known{
	"wp-login.php": login(wordpress), "xmlrpc.php": login(rpc),
	"loginpost": loginRedirectsBoth(), "auth.owa": loginRedirectsBoth(), "j_security_check": login(redirects),
	"j_spring_security_check": loginRedirectsBoth(), "login_form": login(redirects), "ucp.php": login(redirects),
	"administrator": loginRedirectsBoth(),

	"login": login(plain), "login.php": login(plain), "login.html": login(plain), "login.htm": login(plain),
	"login.aspx": login(plain), "login.asp": login(plain), "login.jsp": login(plain), "login.do": login(plain),
	"login.action": login(plain), "login.cgi": login(plain), "log-in": login(plain), "logon": login(plain),
	"logon.aspx": login(plain), "signin": login(plain), "sign-in": login(plain), "sign_in": login(plain),
	"session": login(plain), "sessions": login(plain), "authenticate": login(plain), "token": login(plain),
	"auth": login(plain),

	"_session":               login(plain), // CouchDB
	"api-token-auth":         login(plain), // Django REST framework
	"credentials":            login(plain), // Auth.js: /api/auth/callback/credentials
	"luci":                   login(plain), // OpenWrt
	"my-account":             login(plain), // WooCommerce
	"cmd_login":              login(plain), // DirectAdmin
	"login_up.php":           login(plain), // Plesk
	"j_acegi_security_check": loginRedirectsBoth(), "j_atl_security_check": login(redirects),

	"anmelden": login(plain), "anmeldung": login(plain), "einloggen": login(plain), "connexion": login(plain),
	"se-connecter": login(plain), "iniciar-sesion": login(plain), "acceder": login(plain), "entrar": login(plain),
	"accedi": login(plain), "inloggen": login(plain), "logowanie": login(plain), "zaloguj": login(plain),
	"prihlaseni": login(plain), "giris": login(plain), "dang-nhap": login(plain),

	"wp-comments-post.php": comment(), "guestbook.php": comment(), "posting.php": comment(),
}

func init() {
	for name, k := range names {
		k.name = name
		names[name] = k
	}
}

// parents has the folders whose index.php is a login.
var parents = map[string]known{
	"administrator": loginRedirectsBoth(), "admin": login(plain), "phpmyadmin": login(plain), "pma": login(plain),
}

// wordsOfLogins are those of which names of logins consist, such as admin_login, postLogin or loginform.
var wordsOfLogins = []string{"login", "logon", "signin", "signon", "admin", "administrator", "user", "users", "member",
	"members", "customer", "client", "account", "auth", "authenticate", "do", "post", "check", "form", "ajax", "page",
	"process", "submit", "session", "panel", "web", "site", "my", "log", "sign", "in", "on", "to"}

// isLoginName reports whether a segment of a path, without its extension, consists of words that mean a login.
func isLoginName(name []byte) bool {
	if len(name) > 32 {
		return false
	}
	letters := make([]byte, 0, 32)
	for _, c := range name {
		if c != '-' && c != '_' {
			letters = append(letters, c)
		}
	}
	for _, word := range []string{"login", "logon", "signin", "signon"} {
		if bytes.Contains(letters, []byte(word)) {
			return consistsOfWords(letters)
		}
	}
	return false
}

func consistsOfWords(letters []byte) bool {
	if len(letters) == 0 {
		return true
	}
	for _, word := range wordsOfLogins {
		if rest, ok := bytes.CutPrefix(letters, []byte(word)); ok && consistsOfWords(rest) {
			return true
		}
	}
	return false
}

// loginQueries has the parts of queries by which scripts for all pages mean their login, in lower case.
var loginQueries = []string{
	":userlogin", ":anmelden", ":connexion", // MediaWiki
	"q=user/login",                                       // Drupal
	"task=user.login",                                    // Joomla
	"action=login2",                                      // SMF
	"action=do_login",                                    // MyBB
	"controller=authentication", "controller=adminlogin", // PrestaShop
	"route=account/login", "route=common/login", // OpenCart
	"_action=login", "_task=login", // Roundcube
	"?login/login",
}

// A markedText is a text in lower case that queries may hold. It is looked for at its mark, a byte that is rare in
// queries.
type markedText struct {
	text  string
	mark  int  // the place of the mark
	after byte // behind the mark
}

// markedTexts are texts by their marks.
type markedTexts [256][]markedText

func byMark(texts ...string) *markedTexts {
	var t markedTexts
	for _, text := range texts {
		i := strings.IndexAny(text, ":=?") // see findText
		t[text[i]] = append(t[text[i]], markedText{text, i, text[i+1]})
	}
	return &t
}

var (
	loginTexts    = byMark(loginQueries...)
	ucpLoginTexts = byMark("mode=login")
)

// isLoginQuery reports whether a query means the login of a usual application.
func isLoginQuery(query string) bool {
	return hasFoldedPrefix(query, "login/login") || holdsText(query, loginTexts)
}

const (
	unescapedSize  = 4096 // bytes of a query that are unescaped at once
	longestText    = 32   // bytes of a markedText
	spacesOfTitles = " _" // MediaWiki drops them behind a colon
)

// holdsText reports whether a query holds one of some texts, as it is or with its escapes decoded once.
func holdsText(query string, texts *markedTexts) bool {
	if findText(query, texts) {
		return true
	}
	return (strings.IndexByte(query, '%') >= 0 || strings.IndexByte(query, ':') >= 0) && unescapedHolds(query, texts)
}

// unescapedHolds is holdsText for a query with its escapes decoded, and without spaces behind colons. Bytes that are
// not an escape stay.
func unescapedHolds(query string, texts *markedTexts) bool {
	var buf [unescapedSize]byte
	buf[0] = '?'
	n := 1
	for i := 0; i < len(query); i++ {
		c := query[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(query):
			if hi, lo := hexDigits[query[i+1]], hexDigits[query[i+2]]; hi|lo < 16 {
				c = hi<<4 | lo
				i += 2
			}
		}
		if buf[n-1] == ':' && strings.IndexByte(spacesOfTitles, c) >= 0 {
			continue
		}
		if n == len(buf) {
			if findText(buf[:n], texts) {
				return true
			}
			n = copy(buf[:], buf[n-longestText:]) // a text may continue
		}
		buf[n] = c
		n++
	}
	return findText(buf[:n], texts)
}

// hexDigits has the values of hexadecimal digits; 255 for other bytes.
var hexDigits = func() (t [256]byte) {
	for c := range t {
		t[c] = 255
	}
	for i, c := range "0123456789abcdef" {
		t[c] = byte(i)
	}
	copy(t['A':'G'], t['a':'g'])
	return t
}()

// findText reports whether a query holds one of some texts.
func findText[T string | []byte](query T, texts *markedTexts) bool {
	for i := 0; i+1 < len(query); i++ {
		if c := query[i]; c > '?' || c != '?' && c != '=' && c != ':' { // no mark
			continue
		}
		for _, part := range texts[query[i]] {
			if query[i+1]|0x20 == part.after && part.mark <= i && hasFoldedPrefix(query[i-part.mark:], part.text) {
				return true
			}
		}
	}
	return false
}

// hasFoldedPrefix reports whether s begins with a text in lower case.
func hasFoldedPrefix[T string | []byte](s T, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// canonical appends a path in lower case, as scripts see it: without path information
// behind a script, parameters of the last segment and a final slash.
func canonical(b []byte, path string) []byte {
	last := strings.LastIndexByte(path, '/') + 1
	if i := strings.IndexByte(path[last:], ';'); i >= 0 {
		path = path[:last+i]
	}
	if len(path) > maxPath-1 {
		path = path[:maxPath-1]
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	if i := bytes.Index(b, []byte(".php/")); i >= 0 {
		if base := b[bytes.LastIndexByte(b[:i], '/')+1 : i+4]; string(base) != "index.php" {
			b = b[:i+4]
		}
	}
	for len(b) > 1 && b[len(b)-1] == '/' {
		b = b[:len(b)-1]
	}
	return b
}

// recognize returns the canonical path of a request, and what it is known as. If servers
// may read the path in several ways, a known form is one of them.
func recognize(req *fairshare.Request, buf []byte) ([]byte, known) {
	path := canonical(buf, req.Path)
	as := recognizePath(path, req.Query)
	if req.OddPath && as.style <= candidate {
		readings, _ := req.Readings()
		for _, reading := range readings {
			var other [maxPath]byte
			p := canonical(other[:0], reading)
			if k := recognizePath(p, req.Query); k.style > candidate {
				return append(buf[:0], p...), k
			}
		}
	}
	return path, as
}

// A Target is what the target of a request is known as. The zero Target is not known yet.
type Target struct {
	as    known
	path  string // canonical
	found bool
}

// TargetOf finds out what the target of a request is known as. The zero Target, which is looked at again on arrival,
// means that it is not clear how servers read the path.
func TargetOf(req *fairshare.Request) Target {
	if req.OddPath {
		return Target{}
	}
	var buf [maxPath]byte
	path := canonical(buf[:0], req.Path)
	return Target{as: recognizePath(path, req.Query), path: string(path), found: true}
}

// of returns the canonical path of a request with this target, and what it is known as.
func (t *Target) of(req *fairshare.Request, buf []byte) ([]byte, known) {
	if !t.found {
		return recognize(req, buf)
	}
	return append(buf, t.path...), t.as
}

func recognizePath(path []byte, query string) known {
	slash := bytes.LastIndexByte(path, '/')
	base := path[slash+1:]
	if k, ok := names[string(base)]; ok {
		return ofQuery(k, query)
	}
	if stem, _, cut := bytes.Cut(base, []byte(".")); cut && isLoginWord(stem) { // /sign_in.json
		return ofQuery(names[string(stem)], query)
	}
	if slash > 0 && !isReturn(base) { // /account/login/1
		if parent := path[bytes.LastIndexByte(path[:slash], '/')+1 : slash]; isLoginWord(parent) {
			return ofQuery(names[string(parent)], query)
		}
	}
	if string(base) == "index.php" && slash > 0 {
		parent := path[bytes.LastIndexByte(path[:slash], '/')+1 : slash]
		if k, ok := parents[string(parent)]; ok {
			k.name = "admin/index.php"
			return k
		}
	}
	if string(base) == "wp-cron.php" || string(base) == "admin-ajax.php" {
		return known{}
	}
	if stem, _, _ := bytes.Cut(base, []byte(".")); isLoginName(stem) {
		return named("login")
	}
	if i := bytes.IndexByte(path, ':'); i >= 0 && isLoginQuery(string(path[i:])) { // /wiki/Special:UserLogin/x
		return named(":userlogin")
	}
	if isLoginQuery(query) {
		k := named(":userlogin")
		k.byQuery = true
		return k
	}
	if len(path) < 2 {
		return known{}
	}
	if bytes.Contains(path, []byte("/comment/reply/")) {
		return known{style: open, kind: fairshare.CommentAttempt, name: "/comment/reply/"}
	}
	if bytes.HasPrefix(base, []byte("index.")) || string(base) == "api.php" || string(base) == "graphql" {
		return known{} // one script for all pages
	}
	return known{style: candidate}
}

// isReturn reports whether the last segment of a path below a login is probably one to which single sign-on returns:
// then the answers have to tell whether it is a login.
func isReturn(base []byte) bool {
	switch string(base) {
	case "callback", "acs", "sso", "saml", "saml2", "consume", "oidc", "return":
		return true
	}
	return false
}

func named(name string) known {
	return known{style: plain, kind: fairshare.LoginAttempt, name: name}
}

// isLoginWord reports whether a segment of a path means a login whatever follows it: some applications
// ignore an extension, or a further segment.
func isLoginWord(segment []byte) bool {
	switch string(segment) {
	case "login", "log-in", "logon", "signin", "sign-in", "sign_in":
		return true
	}
	return false
}

// ofQuery looks at the action that the query names. Its name in the body replaces that
// in the query, so other actions are variants with a budget of their own, and not free.
func ofQuery(k known, query string) known {
	switch {
	case query == "":
	case k.style == rpc:
		k.variant = strings.Contains(query, "for=jetpack") // its signed calls have answers of one length, too
	case k.style == wordpress && containsFold(query, "action"):
		k.variant = query != "action=login"
	case k.name == "ucp.php" && strings.Contains(query, "mode=") && !holdsText(query, ucpLoginTexts):
		return known{}
	}
	return k
}

// isLoginPath reports whether a canonical path is the login of a usual application.
func isLoginPath(path []byte) bool {
	base := path[bytes.LastIndexByte(path, '/')+1:]
	k, ok := names[string(base)]
	stem, _, _ := bytes.Cut(base, []byte("."))
	return ok && k.kind == fairshare.LoginAttempt || isLoginName(stem)
}

func containsFold(s, lower string) bool {
	for i := 0; i+len(lower) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}

// resetOf reports whether a GET request opens a link to reset a password.
func resetOf(req *fairshare.Request, path []byte) question {
	if bytes.HasSuffix(path, []byte("/wp-login.php")) {
		if req.Query == "action=rp" && !req.OddPath { // WordPress shows the form only with a valid key
			return resetLink
		}
		return attempt
	}
	for _, word := range []string{"reset", "recover", "password", "invit", "activat", "confirm", "verify", "magic"} {
		if bytes.Contains(path, []byte(word)) && (hasToken(string(path)) || hasToken(req.Query)) {
			return softReset
		}
	}
	return attempt
}

// A link is a link to reset a password that made clients known.
type link struct {
	hash    uint32 // 0: none
	clients uint8
}

const anyLink = 1 // where the cookies are not known

// linkOf returns a keyed hash of the key that WordPress has stored in a cookie when the link was opened; 0 without
// one. It looks at the last letters and digits only, because the rest may be spelled in several ways.
func (w *Watcher) linkOf(req *fairshare.Request) uint32 {
	if req.Header == nil {
		return anyLink
	}
	var key []byte
	for _, line := range req.Header.Values("Cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
			if !strings.HasPrefix(name, "wp-resetpass-") {
				continue
			}
			if key != nil {
				return 0 // nobody knows which one counts
			}
			value = unescape(value)
			for i := len(value) - 1; i >= 0 && len(key) < 20; i-- {
				if c := value[i]; c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' {
					key = append(key, c)
				}
			}
		}
	}
	if len(key) < 20 {
		return 0
	}
	return uint32(max(w.hash(key)>>32, anyLink+1))
}

// admits reports whether a link may make one more client known.
func (w *Watcher) admits(hash uint32) bool {
	switch hash {
	case 0:
		return false
	case anyLink:
		return true
	}
	for i := range w.links {
		if l := &w.links[i]; l.hash == hash {
			if l.clients >= linkClients {
				return false
			}
			l.clients++
			return true
		}
	}
	w.links[w.nextLink] = link{hash, 1}
	w.nextLink = (w.nextLink + 1) % len(w.links)
	return true
}

// hasToken reports whether a text has a run of 20 letters and digits, both among them.
func hasToken(s string) bool {
	run, letters, digits := 0, 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			letters++
		case c == '-' || c == '_':
		default:
			run, letters, digits = -1, 0, 0
		}
		if run++; run >= 20 && letters > 0 && digits > 0 {
			return true
		}
	}
	return false
}

// credentials returns the Authorization header of a request if it has Basic or Bearer
// credentials; "" if not.
func credentials(req *fairshare.Request) string {
	if req.Header == nil {
		return ""
	}
	values := req.Header.Values("Authorization")
	if len(values) == 0 {
		return ""
	}
	scheme, _, _ := strings.Cut(values[0], " ")
	if strings.EqualFold(scheme, "basic") || strings.EqualFold(scheme, "bearer") || strings.EqualFold(scheme, "token") {
		return values[0]
	}
	return "" // others need several requests for each login
}

func isBasic(cred string) bool { return len(cred) > 6 && strings.EqualFold(cred[:6], "basic ") }
