// Package adminapi is the JSON API of the admin listener: what internal/console shows, and the actions of
// operators. Its OpenAPI description is made from the same Go types as the answers. Start with [New].
package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
)

// Prefix begins the path of each request of the API.
const Prefix = "/api/v1/"

// most is the size of the longest body of an action, in bytes.
const most = 16 << 10

// An Error is the body of each answer with a status of 400 or more.
type Error struct {
	Error string `json:"error"`
	Hint  string `json:"hint"` // what to do; may be ""
}

// A parameter is one of the query.
type parameter struct {
	name, about string
	required    bool
}

// An operation is one path of the API.
type operation struct {
	method, path, about string
	parameters          []parameter
	body, answer        any    // values of the types; body nil: none
	sameSite            bool   // of GET: no page of another site may ask for it, because it is work
	otherwise           string // what works without a token; "" means the commands
	run                 func(c *console.Console, r *http.Request, q url.Values) (any, error)
}

var client = parameter{"client", "an address, a prefix or the name of a bot", true}

// operations are all of the API, in the order of its description.
var operations = []operation{
	{method: "GET", path: "now", about: "The present state of the server", answer: console.Now{},
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Now(), nil }},
	{method: "GET", path: "series", about: "Counts of each second of the last five minutes, or each minute of a day",
		parameters: []parameter{{name: "seconds", about: "how far back: 1 to 86400; without it 300"}},
		answer:     console.Series{}, run: series},
	{method: "GET", path: "top", about: "The keys with the greatest sums, and how exact these are",
		parameters: []parameter{{name: "by", about: strings.Join(console.Dimensions, ", ") + "; without it client"},
			{name: "sort", about: strings.Join(console.Sorts, ", ") + "; without it requests"},
			{name: "window", about: "1m, 15m or 1h; without it 1m"}},
		answer: console.TopList{},
		run: func(c *console.Console, _ *http.Request, q url.Values) (any, error) {
			return c.Top(either(q, "by", "client"), either(q, "sort", "requests"), either(q, "window", "1m"))
		}},
	{method: "GET", path: "client", about: "Everything about a client, with what it has used of each limit now",
		parameters: []parameter{client}, answer: console.Client{},
		run: func(c *console.Console, r *http.Request, q url.Values) (any, error) {
			return c.Client(r.Context(), q.Get("client"))
		}},
	{method: "GET", path: "history", about: "What a client, network, owner, fleet or bot did over time",
		parameters: []parameter{{"key", "its name, as top lists it", true},
			{name: "by", about: strings.Join(console.HistoryDimensions, ", ") + "; without it client"},
			{name: "span", about: "1h (minutes) or 2d (hours); without it 1h"}},
		answer: console.History{},
		run: func(c *console.Console, _ *http.Request, q url.Values) (any, error) {
			return c.History(either(q, "by", "client"), q.Get("key"), either(q, "span", "1h"))
		}},
	{method: "GET", path: "explain", about: "The walk of a request through the rules, with what is counted now",
		parameters: []parameter{{"client", "an address", true}, {name: "path", about: "without it /"},
			{name: "method", about: "without it GET"}, {name: "host", about: "the site's name"},
			{name: "user_agent", about: "without it the latest of the client"}},
		answer: console.Explanation{},
		run: func(c *console.Console, r *http.Request, q url.Values) (any, error) {
			return c.Explain(r.Context(), console.Question{Client: q.Get("client"), Path: q.Get("path"),
				Method: q.Get("method"), Host: q.Get("host"), UserAgent: q.Get("user_agent")})
		}},
	{method: "GET", path: "rules", about: "What each rule did, and how near clients are to the limits",
		answer: console.Rules{},
		run:    func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Rules(r.Context()) }},
	{method: "GET", path: "bots", about: "The bots of the last hour", answer: console.Bots{},
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Bots(r.Context()) }},
	{method: "GET", path: "members", about: "The programs that count together in a store", answer: console.Group{},
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Group(), nil }},
	{method: "GET", path: "bans", about: "The bans in force, and operators' decisions", answer: console.Bans{},
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Bans(r.Context()) }},
	{method: "GET", path: "journal", about: "The latest refusals, or those with a reference",
		parameters: []parameter{{name: "id", about: "a reference that a client was shown"},
			{name: "client", about: "an address or prefix"}, {name: "rule", about: "the name of a rule"},
			{name: "limit", about: "1 to 1000; without it 100"}},
		answer: console.Journal{}, run: journal},
	{method: "GET", path: "changes", about: "What a reload of the policy file would change, with faults and warnings",
		answer: console.Reload{}, sameSite: true,
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) { return c.Changes(r.Context()) }},
	{method: "POST", path: "reload", about: "Load the policy file again, if it changes what a plan says. It needs a token, " +
		"also on loopback", otherwise: "send SIGHUP to the process: systemctl reload fairshare, or kill -HUP PID",
		body: console.ReloadOrder{}, answer: console.Reload{},
		run: func(c *console.Console, r *http.Request, _ url.Values) (any, error) {
			var order console.ReloadOrder
			if err := readBody(r, &order, "order", `{"plan": "…"}, with the plan of changes`); err != nil {
				return nil, err
			}
			return c.ReloadPolicy(r.Context(), order.Plan)
		}},
	{method: "POST", path: "actions", about: "Do something about a client. It needs a token, also on loopback",
		body: console.Action{}, answer: console.Result{}, run: act},
}

func either(q url.Values, name, otherwise string) string {
	if v := q.Get(name); v != "" {
		return v
	}
	return otherwise
}

// number returns a parameter between 1 and most.
func number(q url.Values, name string, otherwise, most int) (int, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 1 || n > most {
		return 0, cli.WrongUsage(fmt.Errorf("%s: %q is not a number from 1 to %d", name, q.Get(name), most))
	}
	return n, nil
}

func series(c *console.Console, _ *http.Request, q url.Values) (any, error) {
	n, err := number(q, "seconds", 300, 86400)
	if err != nil {
		return nil, err
	}
	return c.Series(time.Duration(n) * time.Second), nil
}

func journal(c *console.Console, r *http.Request, q url.Values) (any, error) {
	n, err := number(q, "limit", 100, 1000)
	if err != nil {
		return nil, err
	}
	return c.Journal(r.Context(), console.JournalQuery{ID: q.Get("id"), Client: q.Get("client"),
		Rule: q.Get("rule"), Limit: n})
}

func act(c *console.Console, r *http.Request, _ url.Values) (any, error) {
	var action console.Action
	err := readBody(r, &action, "action",
		`{"do": "ban", "client": "203.0.113.9", "for_seconds": 3600, "reason": "too many pages"}`)
	if err != nil {
		return nil, err
	}
	return c.Act(r.Context(), action)
}

// readBody reads the body of a request; what and example are for errors. A page of another site can neither send
// this content type without asking first, nor the token; see also isForeign.
func readBody(r *http.Request, into any, what, example string) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, "the content type is not application/json",
			"Content-Type: application/json"}
	}
	body := json.NewDecoder(http.MaxBytesReader(nil, r.Body, most))
	body.DisallowUnknownFields()
	if err := body.Decode(into); errors.As(err, new(*http.MaxBytesError)) {
		return tooLong
	} else if err != nil {
		return cli.WrongUsage(cli.Hint(fmt.Errorf("the body is not an %s: %w", what, err), "such as "+example))
	}
	if _, err := body.Token(); errors.As(err, new(*http.MaxBytesError)) {
		return tooLong
	} else if err != io.EOF {
		return cli.WrongUsage(fmt.Errorf("something follows the %s in the body", what))
	}
	return nil
}

var tooLong = &statusError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", most),
	"send one action in each request, and a shorter reason or note"}

// A statusError is an error with its status.
type statusError struct {
	status      int
	text, about string
}

func (e *statusError) Error() string { return e.text }

// New returns the handler of the API. mayAct reports whether the sender of a request has proved to be an
// operator: requests without that can read, if the listener lets them, and not act.
func New(c *console.Console, mayAct func(*http.Request) bool) http.Handler {
	mux := http.NewServeMux()
	for i := range operations {
		op := &operations[i]
		mux.HandleFunc(op.method+" "+Prefix+op.path, func(w http.ResponseWriter, r *http.Request) {
			answer, err := op.serve(c, r, mayAct)
			if err != nil {
				fail(w, err)
				return
			}
			write(w, http.StatusOK, answer)
		})
	}
	mux.HandleFunc("GET "+Prefix+"openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, Description())
	})
	mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		for _, op := range operations {
			if r.URL.Path == Prefix+op.path {
				w.Header().Set("Allow", op.method)
				fail(w, &statusError{http.StatusMethodNotAllowed, "this method is not known here",
					"use " + op.method})
				return
			}
		}
		fail(w, &statusError{http.StatusNotFound, "there is nothing at this path",
			Prefix + "openapi.json describes what there is"})
	})
	return mux
}

func (op *operation) serve(c *console.Console, r *http.Request, mayAct func(*http.Request) bool) (any, error) {
	if (op.method != "GET" || op.sameSite) && isForeign(r) {
		return nil, &statusError{http.StatusForbidden, "the page of another site has sent this request",
			"it is possible from this server's own pages and from programs"}
	}
	if op.method != "GET" && !mayAct(r) {
		otherwise := op.otherwise
		if otherwise == "" {
			otherwise = "use the commands, such as fairshare ban"
		}
		return nil, &statusError{http.StatusForbidden, "actions need a token",
			"start serve with --admin-token-file FILE (openssl rand -hex 32 > FILE; chmod 600 FILE), and send " +
				"Authorization: Bearer TOKEN; or " + otherwise}
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, cli.WrongUsage(errors.New("the query cannot be read"))
	}
	for name, values := range q {
		known := slices.ContainsFunc(op.parameters, func(p parameter) bool { return p.name == name })
		if !known || len(values) > 1 {
			return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("parameter %q is not known, or given twice", name),
				Prefix+"openapi.json lists the parameters"))
		}
	}
	for _, p := range op.parameters {
		if p.required && q.Get(p.name) == "" {
			return nil, cli.WrongUsage(cli.Hint(fmt.Errorf("parameter %s is missing", p.name), p.name+" is "+p.about))
		}
	}
	return op.run(c, r, q)
}

// isForeign reports whether a page of another origin has sent a request.
func isForeign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status, body := http.StatusInternalServerError, Error{Error: cli.OneLine(err)}
	var hint *cli.HintError
	var usage *cli.UsageError
	var own *statusError
	switch {
	case errors.As(err, &own):
		status, body.Hint = own.status, own.about
	case errors.As(err, &usage):
		status = http.StatusBadRequest
	case errors.Is(err, console.ErrNoRegistry):
		status = http.StatusConflict
	case errors.As(err, &hint): // an action that is possible in itself, such as a ban of the machine itself
		status = http.StatusConflict
	}
	if errors.As(err, &hint) {
		body.Hint = hint.Hint
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written","hint":""}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}
