package main

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"fairshare/internal/accesslog"
)

// A label is the kind of a client. It is derived from all of the client's requests in a
// log, independently of any policy.
type label string

const (
	visitor label = "visitor" // a browser or an app: its pages exist, and it loads their parts
	crawler label = "crawler" // a program that reads pages and says so
	machine label = "machine" // feed readers, monitors, calls of the site itself, libraries with few requests
	scanner label = "scanner" // searches for security holes
	guesser label = "guesser" // guesses passwords
	spammer label = "spammer" // sends many posts
	forger  label = "forger"  // pretends to be a crawler whose addresses are published
	unclear label = "unclear" // too few requests, or contradictory ones
)

var labels = []label{visitor, crawler, machine, unclear, scanner, guesser, spammer, forger}

// bad reports whether a policy should stop clients with the label.
func (l label) bad() bool { return l == scanner || l == guesser || l == spammer || l == forger }

// A client counts the requests of one address in a log.
type client struct {
	requests, stopped int
	rules             map[string]int // the rules that stopped them

	pages, assets   int // answered below 400
	posts           int
	referers        int // requests with one
	lost            int // 400, 403, 404, 405, 406, without a referer, not of an asset
	probes          int // requests that no client makes by accident
	logins, entered int // POST to a login; of these, redirected as after a success
	writes          int // POST of a comment, an edit, an account
	own             int // WordPress' calls to itself
	paths           map[string]bool
	agent           string // the latest
	agents          map[string]bool
	forged          int
	forgedStopped   int
	lateStopped     int // after the first requests
	last            time.Time
	sittings        int // separated by half an hour
}

const manyPaths = 1000 // more are not distinguished

var (
	assetPath = regexp.MustCompile(
		`(?i)\.(css|m?js|map|png|jpe?g|gif|webp|avif|svg|ico|woff2?|ttf|otf|eot|mp[34]|webm|m4s|ts|pdf|zip)$|^/(load|thumb)\.php$`)
	feedPath = regexp.MustCompile(`(?i)(feed|rss|atom|\.xml$|robots\.txt$|ads\.txt$)`)
	// injection matches attacks in parameters.
	injection = regexp.MustCompile(
		`union[\s+/*]+(all[\s+/*]+)?select|\b(or|and)[\s+]+['"]?\w+['"]?[\s+]*=[\s+]*['"]?\w+['"]?($|[\s+]*(--|#))|/plugins/[^/]+/[^/]*(upload|ajax|download|destination|fm)[^/]*\.php`)
	tools = regexp.MustCompile(
		`(?i)sqlmap|nikto|nmap|masscan|zgrab|nuclei|wpscan|w3af|acunetix|netsparker|nessus|openvas|dirbuster|gobuster|feroxbuster|wfuzz|ffuf|zmeu|muieblackcat|jorgee|morfeus|havij|arachni|skipfish|fimap|whatweb|l9explore|l9tcpid|leakix|xfa1|hello,? world|netsystemsresearch|censys|expanse`)
	claims = regexp.MustCompile(
		`(?i)bot\b|bot[/_;-]|crawl|spider|slurp|archiv|https?://|@|fetch|scrapy|preview|facebookexternal|whatsapp|wordpress|java/|http|curl|wget|python|libwww|perl|ruby|go-|okhttp|axios|node|synapse`)
	crawls  = regexp.MustCompile(`(?i)bot\b|bot[/_;-]|crawl|spider|slurp|archiver|https?://`)
	readers = regexp.MustCompile(
		`(?i)feed|rss|reader|jetmon|jetpack|uptime|monitor|pingdom|wordpress/|internal dummy|statuscake|newrelic|site24|icinga|nagios|check_http|mastodon|activitypub|podcast`)
	loginPath = regexp.MustCompile(
		`(?i)(wp-login\.php|xmlrpc\.php|/(log|sign)_?-?in(_form|\.php|\.aspx?|\.jsp|\.html?)?/?|/administrator/(index\.php)?|/admin/(index\.php|login[^/]*)?|/user(s)?/(login|sign_in)|/auth[^/]*(/login|/token)?|/session(s)?|/ucp\.php|owa/auth\.owa)$`)
	loginQuery = regexp.MustCompile(
		`(?i)(^|&)(title=[^&]*:userlogin|action=login|do=login|task=user\.login|mode=login)`)
	writePath = regexp.MustCompile(
		`(?i)(wp-comments-post\.php|/comment[^/]*(/reply/.*)?|guestbook[^/]*|/posting\.php|/(join|register|signup|sign_up|registration|contact)(_form|\.php|\.aspx?)?/?|/user/register)$`)
	writeQuery = regexp.MustCompile(
		`(?i)(^|&)(action=(submit|edit|register)|title=[^&]*:createaccount|mode=(post|reply|register)|do=(register|newthread|newreply)|task=registration)`)
)

// holes are parts of requests that search for security holes, in lower case.
var holes = strings.Fields(
	`/.env /.git/ /.gitconfig /.svn/ /.hg/ /.aws/ /.ssh/ /id_rsa /.vscode/ /.htpasswd /.htaccess /.ds_store wp-config eval-stdin phpinfo phpunit
	/etc/passwd /etc/shadow win.ini /bin/sh /bin/bash ../ ..\ %2e%2e /actuator /cgi-bin/ hnap1 boaform gponform _ignition fckeditor dl-skin.php wlwmanifest setup-config
	<script javascript: sleep( benchmark( xp_cmdshell base64_decode exec( allow_url_include auto_prepend invokefunction /shell.php /cmd.php /c99 /r57 /wso /alfa /adminer
	phpmyadmin /pma/ /myadmin /sqladmin .bak .swp .sql .old/ /config.json /configuration.php server-status /manager/html /solr/ jmx-console /console/ owa/auth autodiscover
	/_profiler /debug/ acunetix netsparker w3af nessus nikto nice%20ports vulnweb oast. bxss.me jndi: proc/self waitfor`)

// isTool reports whether a user agent is that of a tool. It caches the results.
func isTool(agent string) bool {
	is, known := toolAgents[agent]
	if !known {
		is = tools.MatchString(agent)
		if len(toolAgents) < 100_000 {
			toolAgents[agent] = is
		}
	}
	return is
}

var toolAgents = map[string]bool{}

// probes reports whether no client makes such a request by accident.
func probes(target string) bool {
	target = strings.ToLower(target)
	whole := target
	if strings.ContainsAny(target, "%+") {
		if u, err := url.QueryUnescape(target); err == nil {
			whole = u
		}
	}
	for _, hole := range holes {
		if strings.Contains(whole, hole) || strings.Contains(target, hole) {
			return true
		}
	}
	return injection.MatchString(whole)
}

func (c *client) add(e *accesslog.Entry, forged bool) {
	c.requests++
	target, query, _ := strings.Cut(e.Target, "?")
	p := target
	if u, err := url.PathUnescape(target); err == nil {
		p = u
	}
	if len(c.paths) < manyPaths {
		c.paths[p] = true
	}
	if len(c.agents) < 100 {
		c.agents[e.UserAgent] = true
	}
	if e.UserAgent != "" || c.agent == "" {
		c.agent = e.UserAgent
	}
	if forged {
		c.forged++
	}
	if e.Time.Sub(c.last) > 30*time.Minute {
		c.sittings++
	}
	c.last = e.Time
	asset := assetPath.MatchString(p)
	switch {
	case e.Status >= 400:
	case asset:
		c.assets++
	case e.Method == "GET":
		c.pages++
	}
	if e.Referer != "" && !strings.HasSuffix(e.Referer, e.Target) { // programs send the URL itself
		c.referers++
	}
	if probes(e.Target) || isTool(e.UserAgent) || strings.Contains(e.UserAgent, "() {") {
		c.probes++
	}
	if slices.Contains([]int{400, 403, 404, 405, 406}, e.Status) && e.Referer == "" && !asset &&
		!feedPath.MatchString(p) && !strings.HasPrefix(p, "/.well-known/") &&
		!strings.HasPrefix(path.Base(p), "apple-") {
		c.lost++
	}
	if strings.HasSuffix(p, "/wp-cron.php") {
		c.own++
	}
	if e.Method != "POST" {
		return
	}
	c.posts++
	switch {
	case loginPath.MatchString(p) || loginQuery.MatchString(query):
		c.logins++
		if e.Status == 302 || e.Status == 303 {
			c.entered++
		}
	case writePath.MatchString(p) || writeQuery.MatchString(query):
		c.writes++
	}
}

// label returns the label of the client. logged is the information in the log.
func (c *client) label(logged accesslog.Fields) label {
	failed := c.logins - c.entered
	claims := logged&accesslog.HasUserAgent != 0 && (c.agent == "" || claims.MatchString(c.agent))
	says := crawls.MatchString(c.agent)
	part := func(n int) float64 { return float64(n) / float64(c.requests) }
	switch {
	case c.own > 0 && part(c.own) > 0.3 || strings.Contains(c.agent, "internal dummy"):
		return machine
	case c.forged > 0:
		return forger
	case c.writes+c.logins >= 5 && c.writes >= 2 && c.assets == 0 && part(c.posts) > 0.05 && len(c.paths) < 50:
		return spammer
	case c.probes >= 3 && part(c.probes) > 0.03, c.probes >= 1 && part(c.probes) >= 0.5,
		c.lost >= 8 && part(c.lost) > 0.5 && !says && len(c.paths) >= 10:
		if failed > 5 && part(c.logins) > 0.5 {
			return guesser
		}
		return scanner
	case failed >= 3 && part(c.logins) >= 0.3 && c.assets < c.logins && !readers.MatchString(c.agent):
		return guesser
	case failed >= 1 && c.assets == 0 && part(c.logins) >= 0.3 && !readers.MatchString(c.agent):
		return guesser
	case failed >= 1 && c.assets < 5 && part(c.logins) >= 0.15 && !readers.MatchString(c.agent):
		return guesser
	case c.writes >= 5 && c.assets <= 1 && part(c.writes) > 0.2 && len(c.paths) < 20:
		return spammer
	case readers.MatchString(c.agent):
		return machine
	case says:
		return crawler
	case claims && c.assets < 3:
		if c.lost >= 5 && part(c.lost) > 0.5 {
			return unclear
		}
		return machine
	case c.requests >= 3 && part(c.pages+c.assets+c.posts) >= 0.5 && c.assets > 0 &&
		(c.referers > 0 || logged&accesslog.HasReferer == 0) && part(c.lost) < 0.2:
		return visitor
	case c.requests >= 3 && part(c.lost) < 0.1 && strings.HasPrefix(c.agent, "Dalvik/"):
		return visitor
	case c.requests >= 2 && c.requests <= 200 && (c.pages > 1 || c.assets > 0) && c.posts < c.pages &&
		part(c.pages+c.assets+c.posts) >= 0.9 && !claims && c.probes == 0:
		return visitor
	}
	return unclear
}
