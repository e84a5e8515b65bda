package check

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/clientaddr"
	"fairshare/logins"
	"fairshare/policyfile"
)

// A Request describes a request in the words of the command line. Only Target
// is needed.
type Request struct {
	Target    string   // a method and a path: "GET /x"; without a method, GET
	Addr      string   // of the client; "" means 203.0.113.1
	Through   string   // the peer that names Addr and that no policy names; "" for none
	UserAgent string   // "": that of Header
	Cookie    string   // the Cookie header, or the name of one cookie
	Host      string   // "": that of Header
	Header    []string // other headers, each "NAME: VALUE"
	Form      []string // fields of the body's form, each "NAME=VALUE"
	Labels    []string // that the registry has for the client
	Attempts  []string // login, comment, credentials, excess, known; empty: what the method and the path show
	Browser   string   // likely, claimed or contradicted; "": what the headers show
}

// RawTarget returns the request target as sent.
func (r *Request) RawTarget() string {
	_, target := r.methodAndTarget()
	return target
}

func (r *Request) methodAndTarget() (method, target string) {
	method, target, found := strings.Cut(strings.TrimSpace(r.Target), " ")
	if !found {
		method, target = "GET", method
	}
	target, _, _ = strings.Cut(strings.TrimSpace(target), " ") // without the protocol, if it follows
	return method, target
}

// Parse returns the request as a rule sees it. An error names the flag of
// fairshare check that is wrong.
func (r *Request) Parse() (*fairshare.Request, error) {
	method, target := r.methodAndTarget()
	req := &fairshare.Request{Method: method, Host: r.Host, UserAgent: r.UserAgent, Time: time.Now()}
	if target == "" || target[0] != '/' && target != "*" && !strings.Contains(target, ":") {
		return nil, fmt.Errorf("--try: a method and a path are needed, as in --try 'GET /x', not %q", r.Target)
	}
	req.SetTarget(target)
	if err := r.setClient(req); err != nil {
		return nil, err
	}
	if err := r.setHeader(req); err != nil {
		return nil, err
	}
	if err := r.setForm(req); err != nil {
		return nil, err
	}
	if err := r.setBrowser(req); err != nil {
		return nil, err
	}
	if err := r.setAttempts(req); err != nil {
		return nil, err
	}
	for _, s := range r.Labels {
		label, err := policyfile.ParseLabel(s)
		if err != nil {
			return nil, fmt.Errorf("--label: %w: %s", err, err.(*policyfile.LabelError).Hint())
		}
		req.Override.Labels = append(req.Override.Labels, label)
	}
	return req, nil
}

// setClient sets the address of the client and the peer that names it.
func (r *Request) setClient(req *fairshare.Request) error {
	text := r.Addr
	if text == "" {
		text = "203.0.113.1"
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("--addr: %q is not an address", r.Addr)
	}
	req.Addr = addr.Unmap().WithZone("")
	if r.Through != "" {
		peer, err := netip.ParseAddr(r.Through)
		if err != nil || !clientaddr.IsLocal(peer) {
			return fmt.Errorf("--through: %q is not an address of this machine or of a private network", r.Through)
		}
		req.Via = peer.Unmap().WithZone("")
	}
	return nil
}

// setForm sets the fields of the form that the request sends.
func (r *Request) setForm(req *fairshare.Request) error {
	fields := make([]string, len(r.Form))
	for i, text := range r.Form {
		name, value, found := strings.Cut(text, "=")
		if text == "unknown" {
			req.Form.Unknown = true
			continue
		}
		if !found || name == "" {
			return fmt.Errorf("--form: a name, = and a value are needed, or unknown for a body without readable fields, not %q", text)
		}
		if r.method() == "GET" || r.method() == "HEAD" {
			return fmt.Errorf("--form: a form needs a method with a body, as in --try 'POST /x', not %s", r.method())
		}
		fields[i] = url.QueryEscape(name) + "=" + url.QueryEscape(value)
	}
	if !req.Form.Unknown {
		req.Form.Encoded = strings.Join(fields, "&")
	}
	return nil
}

func (r *Request) method() string {
	method, _ := r.methodAndTarget()
	return method
}

// setBrowser sets what shows that the client is a browser. Headers alone never make one likely.
func (r *Request) setBrowser(req *fairshare.Request) error {
	if r.Browser == "" {
		req.Browser = headerSigns(req)
		return nil
	}
	for b := fairshare.BrowserClaimed; b <= fairshare.BrowserContradicted; b++ {
		if b.String() == r.Browser {
			req.Browser = b
			return nil
		}
	}
	return fmt.Errorf("--browser: likely, claimed or contradicted is needed, not %q", r.Browser)
}

// setAttempts sets what the request tries, and what is known of the client at logins.
func (r *Request) setAttempts(req *fairshare.Request) error {
	if len(r.Attempts) == 0 {
		logins.New(logins.Options{}).Arrived(req, nil)
		return nil
	}
	known := knownClient(false)
	for _, word := range r.Attempts {
		switch word {
		case fairshare.LoginAttempt.String():
			req.Attempt = fairshare.LoginAttempt
		case fairshare.CommentAttempt.String():
			req.Attempt = fairshare.CommentAttempt
		case fairshare.CredentialsAttempt.String():
			req.Attempt = fairshare.CredentialsAttempt
		case "excess":
			req.Excess = true
		case "known":
			known = true
		default:
			return fmt.Errorf("--attempt: login, comment, credentials, excess or known is needed, not %q", word)
		}
	}
	req.Logins = known
	return nil
}

// A knownClient says whether the client has logged in before.
type knownClient bool

func (k knownClient) HasLoggedIn(*fairshare.Request) bool { return bool(k) }

// headerSigns returns what the headers of a request show of its client.
func headerSigns(req *fairshare.Request) fairshare.Browser {
	claim := browser.ClaimOf(req.UserAgent)
	switch {
	case claim.Family == browser.NoFamily:
		return fairshare.NotBrowser
	case browser.Contradiction(req, claim, browser.Conn{}) != "":
		return fairshare.BrowserContradicted
	}
	return fairshare.BrowserClaimed
}

// setHeader sets all headers, and the facts that are taken from them.
func (r *Request) setHeader(req *fairshare.Request) error {
	header := http.Header{}
	for _, line := range r.Header {
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || name == "" {
			return fmt.Errorf("--header: a name, a colon and a value are needed, not %q", line)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	if r.UserAgent != "" {
		header.Set("User-Agent", r.UserAgent)
	} else {
		req.UserAgent = header.Get("User-Agent")
	}
	if r.Cookie != "" {
		cookie := r.Cookie
		if !strings.Contains(cookie, "=") {
			cookie += "=1"
		}
		header.Add("Cookie", cookie)
	}
	if r.Host == "" {
		req.Host = header.Get("Host")
	}
	req.Header = header
	return nil
}
