// Package dashboard has the pages of the admin listener: what internal/console shows, for people, and the
// actions of operators as forms. The pages work without JavaScript; with it they update themselves.
// Start with [New].
package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/prose"
)

//go:embed static templates
var files embed.FS

const (
	mostForm = 16 << 10 // bytes of a form
	pageRows = 100      // of a list that has pages
	topRows  = 20       // of a list that can be shown whole
)

// handler answers requests for pages.
type handler struct {
	console  *console.Console
	sessions *sessions
	isToken  func(string) bool
	now      func() time.Time
}

// New returns the handler of the pages, which begin at the path /. isToken reports whether a text is the
// operators' token, and takes the same time for all wrong ones. Without it, the pages are open for every
// request that arrives here, and offer no actions.
func New(c *console.Console, isToken func(string) bool) http.Handler {
	h := &handler{console: c, sessions: newSessions(), isToken: isToken, now: time.Now}
	return h.routes()
}

// templates returns the template of each page. They are parsed when the first page is asked for: most servers
// never show one.
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html",
		"templates/parts.html"))
	pages := map[string]*template.Template{}
	for _, name := range []string{"now", "client", "rules", "bots", "bans", "journal", "history", "reload", "login",
		"error"} {
		pages[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return pages
})

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	for path, show := range map[string]func(*http.Request, *page) error{
		"/{$}": h.showNow, "/client": h.showClient, "/rules": h.showRules, "/bots": h.showBots, "/bans": h.showBans,
		"/journal": h.showJournal, "/history": h.showHistory, "/reload": h.showReload,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, show) })
	}
	mux.HandleFunc("GET /login", h.showLogin)
	mux.HandleFunc("POST /login", h.login)
	mux.HandleFunc("POST /logout", h.logout)
	mux.HandleFunc("POST /act", h.act)
	mux.HandleFunc("POST /reload", h.reload)
	for _, path := range []string{"static/style.css", "static/script.js", "static/icon.svg"} {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, files, path)
		})
	}
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		h.serve(w, r, func(*http.Request, *page) error { return errNoPage })
	})
	return headers(http.NewCrossOriginProtection().Handler(mux))
}

// headers sets the headers of all answers. A form needs an Origin, and browsers send none with
// the policy no-referrer: same-origin tells other hosts as little.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header().Set
		set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
			"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		set("X-Frame-Options", "DENY")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cross-Origin-Resource-Policy", "same-origin")
		set("Cache-Control", "no-store")
		set("X-Content-Type-Options", "nosniff")
		set("Referrer-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// A page is what a template shows.
type page struct {
	Title    string
	Path     string // of the link in the menu
	At       time.Time
	DryRun   bool   // of the whole policy
	CSRF     string // of a session that may act; "": no actions
	HasToken bool   // the listener has a token
	Message  *message
	Data     any
	// Next is the query of this page, to return to it.
	Next string
}

var errNoPage = &statusError{http.StatusNotFound, "there is no such page", "use the menu above"}

// A statusError is an error with its status.
type statusError struct {
	status     int
	text, hint string
}

func (e *statusError) Error() string { return e.text }

// serve answers a request for a page.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, show func(*http.Request, *page) error) {
	p := &page{At: h.now(), HasToken: h.isToken != nil, Path: r.URL.Path,
		Next: r.URL.RequestURI()}
	if h.isToken != nil {
		s := h.sessions.find(r, p.At)
		if s == nil {
			http.Redirect(w, r, "/login", http.StatusSeeOther)
			return
		}
		p.CSRF = s.csrf
		p.Message = h.sessions.take(s)
	}
	p.DryRun = h.console.Policy.Current().File.Policy.DryRun
	name := strings.Trim(r.URL.Path, "/")
	if name == "" {
		name = "now"
	}
	if err := show(r, p); err != nil {
		h.fail(w, p, err)
		return
	}
	h.write(w, http.StatusOK, name, p)
}

// failure is what the page of an error shows.
type failure struct{ Error, Hint string }

func (h *handler) fail(w http.ResponseWriter, p *page, err error) {
	status := http.StatusInternalServerError
	var own *statusError
	var usage *cli.UsageError
	f := failure{Error: cli.OneLine(err)}
	var hint *cli.HintError
	if errors.As(err, &hint) {
		f.Hint = hint.Hint
	}
	switch {
	case errors.As(err, &own):
		status, f.Hint = own.status, own.hint
	case errors.As(err, &usage):
		status = http.StatusBadRequest
	}
	p.Title, p.Data = "This is not possible", f
	h.write(w, status, "error", p)
}

func (h *handler) write(w http.ResponseWriter, status int, name string, p *page) {
	var b bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&b, "layout.html", p); err != nil {
		http.Error(w, "the page cannot be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func (h *handler) showLogin(w http.ResponseWriter, r *http.Request) {
	if h.isToken == nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	h.write(w, http.StatusOK, "login", &page{Title: "Log in", At: h.now(), HasToken: true})
}

func (h *handler) login(w http.ResponseWriter, r *http.Request) {
	p := &page{Title: "Log in", At: h.now(), HasToken: h.isToken != nil}
	if h.isToken == nil {
		h.fail(w, p, errReadOnly)
		return
	}
	from := networkOf(r)
	if !h.sessions.mayTry(from, p.At) {
		w.Header().Set("Retry-After", "60")
		h.fail(w, p, &statusError{http.StatusTooManyRequests, "too many wrong tokens from your network",
			"wait a minute"})
		return
	}
	if err := readForm(w, r); err != nil {
		h.fail(w, p, err)
		return
	}
	if !h.isToken(strings.TrimSpace(r.PostFormValue("token"))) {
		h.sessions.failed(from)
		p.Message = &message{Failed: true, Lines: []string{"This is not the token."}}
		h.write(w, http.StatusForbidden, "login", p)
		return
	}
	h.sessions.open(w, r, p.At)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// readForm reads the form of a request.
func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	err := r.ParseForm()
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*http.MaxBytesError)):
		return &statusError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the form has more than %d bytes", mostForm),
			"shorten the reason or the note"}
	}
	return &statusError{http.StatusBadRequest, "the form cannot be read", "open the page again, and repeat the action"}
}

var errReadOnly = &statusError{http.StatusForbidden, "actions need a token",
	"start serve with --admin-token-file FILE (openssl rand -hex 32 > FILE; chmod 600 FILE)"}

// ours reads a form of a session. It answers, and returns nil, if a form is not one of ours.
func (h *handler) ours(w http.ResponseWriter, r *http.Request) *session {
	p := &page{At: h.now(), HasToken: h.isToken != nil}
	if h.isToken == nil {
		h.fail(w, p, errReadOnly)
		return nil
	}
	s := h.sessions.find(r, p.At)
	if s == nil {
		h.fail(w, p, &statusError{http.StatusForbidden, "you are not logged in", "log in, and do it again"})
		return nil
	}
	if err := readForm(w, r); err != nil {
		h.fail(w, p, err)
		return nil
	}
	if !sameText(r.PostForm.Get("csrf"), s.csrf) {
		h.fail(w, p, &statusError{http.StatusForbidden, "this form does not belong to your session",
			"open the page again, and repeat the action"})
		return nil
	}
	return s
}

func (h *handler) logout(w http.ResponseWriter, r *http.Request) {
	if h.ours(w, r) != nil {
		h.sessions.end(w, r)
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	}
}

// act does what a form says, and returns to the page of the form.
func (h *handler) act(w http.ResponseWriter, r *http.Request) {
	s := h.ours(w, r)
	if s == nil {
		return
	}
	f := r.PostForm
	m := new(message)
	action, err := actionOf(f)
	var done *console.Result
	if err == nil {
		done, err = h.console.Act(r.Context(), action)
	}
	if err == nil {
		m.Lines = append(done.Lines, "The server follows within a second.")
	} else {
		m.fail(err)
	}
	h.sessions.leave(s, m)
	http.Redirect(w, r, returnTo(f.Get("next")), http.StatusSeeOther)
}

// reload loads the policy file again if that changes what the page of the form has shown.
func (h *handler) reload(w http.ResponseWriter, r *http.Request) {
	s := h.ours(w, r)
	if s == nil {
		return
	}
	m := new(message)
	done, err := h.console.ReloadPolicy(r.Context(), r.PostForm.Get("plan"))
	switch {
	case errors.Is(err, console.ErrChanged):
		m.Failed, m.Lines = true, []string{"Nothing was loaded, because the policy has changed since you looked at it. " +
			"This page shows what it would change now."}
	case err != nil:
		m.fail(err)
	case !done.Applied:
		m.Failed, m.Lines = true, []string{"Nothing was loaded: the log of the server says why."}
	default:
		m.Lines = []string{done.Policy + " was loaded and is in force."}
	}
	h.sessions.leave(s, m)
	http.Redirect(w, r, "/reload", http.StatusSeeOther)
}

// actionOf reads a form.
func actionOf(f url.Values) (console.Action, error) {
	a := console.Action{Do: f.Get("do"), Client: strings.TrimSpace(f.Get("client")), Reason: f.Get("reason"),
		Label: f.Get("label"), Note: f.Get("note"), Force: f.Get("force") == "yes"}
	if text := f.Get("for"); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			return a, cli.WrongUsage(fmt.Errorf("how long: %q is not a duration", text))
		}
		a.For = length.Seconds()
	}
	if a.Do == "forget" && f.Get("sure") != "yes" {
		return a, cli.WrongUsage(errors.New("nothing was deleted: confirm it with the checkbox"))
	}
	return a, nil
}

// returnTo returns the address of a page of ours, whatever a form says.
func returnTo(next string) string {
	u, err := url.Parse(next)
	if err == nil && slices.Contains([]string{"/client", "/rules", "/bots", "/bans", "/journal"}, u.Path) {
		return u.Path + "?" + u.Query().Encode()
	}
	return "/"
}

// choice returns a parameter that is one of some texts; the first one if it is missing or unknown.
func choice(r *http.Request, name string, known ...string) string {
	if v := r.URL.Query().Get(name); slices.Contains(known, v) {
		return v
	}
	return known[0]
}

// A pager shows one page of a list.
type pager struct {
	Number, Pages, All int
	Before, After      string // addresses; "": there is no such page
}

// paged returns one page of a list. parameter has its number, from 1.
func paged[T any](r *http.Request, parameter string, all []T) ([]T, pager) {
	p := pager{Number: 1, Pages: max((len(all)+pageRows-1)/pageRows, 1), All: len(all)}
	if n, err := strconv.Atoi(r.URL.Query().Get(parameter)); err == nil {
		p.Number = min(max(n, 1), p.Pages)
	}
	address := func(n int) string {
		if n < 1 || n > p.Pages {
			return ""
		}
		q := r.URL.Query()
		q.Set(parameter, strconv.Itoa(n))
		return r.URL.Path + "?" + q.Encode()
	}
	p.Before, p.After = address(p.Number-1), address(p.Number+1)
	first := (p.Number - 1) * pageRows
	return all[min(first, len(all)):min(first+pageRows, len(all))], p
}

// functions of the templates. text, or lines, is for everything that clients or operators have written.
var functions = template.FuncMap{
	"text":   prose.Printable,
	"lines":  prose.PrintableLines,
	"number": func(n any) (string, error) { return numberText(n) },
	"size":   prose.Size,
	"share":  prose.Share,
	"seconds": func(s float64) string {
		return prose.Seconds(time.Duration(s * float64(time.Second)))
	},
	"duration": prose.Duration,
	"lasting":  func(s float64) string { return prose.Duration(time.Duration(s * float64(time.Second))) },
	"ago":      prose.Ago,
	"moment":   prose.Moment,
	"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"time":     func(t time.Time, c *chart) string { return c.time(t) },
	"lapse":    prose.Seconds,
	"plural":   func(n int, one string) string { return prose.Plural(n, one) },
	"part":     func(f float64) string { return number(100 * min(max(f, 0), 1)) },
	"of":       func(used, allowed int64) float64 { return float64(used) / float64(max(allowed, 1)) },
	"list":     func(items ...any) []any { return items },
	"empty":    func(s string) string { return cmp.Or(s, "–") },
}

func numberText(n any) (string, error) {
	switch n := n.(type) {
	case int:
		return prose.Number(n), nil
	case int64:
		return prose.Number(n), nil
	case uint64:
		return prose.Number(n), nil
	}
	return "", fmt.Errorf("%T is not a number", n)
}
