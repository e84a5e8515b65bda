// Package waitingroom makes the page for people whose browser gets no turn at a busy
// site, in their language. Start with [New]; package httpguard sends the page.
//
// The page needs no script and loads nothing. It reloads itself by a Refresh
// header. A step is optional: a button or a proof of work, which raises the standing
// of the visitor.
package waitingroom

import (
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html"
	"strconv"
	"strings"
	"time"

	"fairshare/texts"
)

// Options of a [Room]. The zero Options are useful.
type Options struct {
	// After is how long a person's browser waits for its turn before it gets the
	// page. 0 means DefaultAfter; below 0 it gets the page at once.
	After time.Duration

	// Step is what a visitor may do to count as known for longer.
	Step Step

	// Difficulty is the number of bits of a ProofOfWork: it takes 2^Difficulty
	// SHA-256 hashes on average. 0 means DefaultDifficulty.
	Difficulty int

	// Texts has the texts in all languages. nil means the built-in ones.
	Texts *texts.Set

	// Key signs the challenges of a step. Machines with the same key accept each
	// other's. nil means a random key, which ends with the Room.
	Key []byte
}

// DefaultAfter is what a zero Options.After means. A page with content after five
// seconds is better than one that says "wait" after two: the second visit would cost
// two more seconds, and another request.
const DefaultAfter = 5 * time.Second

// A Room makes pages. It is safe for concurrent use.
type Room struct {
	options Options
	key     [sha256.Size]byte
	pages   []*page // by the index of the language
	policy  []string
}

// New returns a Room. It returns an error if an option is out of its bounds.
func New(opts Options) (*Room, error) {
	if err := opts.Check(); err != nil {
		return nil, err
	}
	if opts.After == 0 {
		opts.After = DefaultAfter
	}
	if opts.Difficulty == 0 {
		opts.Difficulty = DefaultDifficulty
	}
	r := &Room{options: opts}
	if opts.Key == nil {
		rand.Read(r.key[:]) // it never fails
	} else {
		r.key = sha256.Sum256(append([]byte("fairshare waiting room 1\x00"), opts.Key...))
	}
	if opts.Texts == nil {
		r.options.Texts = texts.BuiltIn()
	}
	languages := r.options.Texts.Languages()
	for i := range languages {
		r.pages = append(r.pages, r.newPage(&languages[i]))
	}
	r.policy = []string{r.contentPolicy()}
	return r, nil
}

// Check returns the first option that is out of its bounds.
func (o *Options) Check() error {
	if err := o.checkStep(); err != nil {
		return err
	}
	if o.Key != nil && len(o.Key) < 16 {
		return errors.New("waiting room: a key needs 16 bytes")
	}
	return nil
}

// After returns how long a browser waits for its turn before it gets the page; at
// least 0.
func (r *Room) After() time.Duration { return max(r.options.After, 0) }

// Bounds of the time after which the page reloads, in seconds.
const (
	minReload = 2
	maxReload = 24 // and a quarter: a visitor that does not return for a minute loses its place
)

// workSpeed is how many hashes a slow phone computes in a second.
const workSpeed = 100_000

// Reload returns the seconds after which the page reloads, 2 to 29. The visitor has
// to wait for the time expected and has waited for the time waited. Different values
// of spread spread the visitors. A step means that the page offers one.
func (r *Room) Reload(expected, waited time.Duration, spread uint8, step bool) int {
	sec := int((expected + time.Second - 1) / time.Second)
	sec = max(sec, int(waited/(8*time.Second)), minReload) // the longer it waits, the less one more second matters
	if step && r.options.Step == ProofOfWork {             // else a slow phone would never finish
		sec = max(sec, 2+3*(1<<r.options.Difficulty)/workSpeed)
	}
	sec = min(sec, maxReload)
	return sec + (sec+3)/4*int(spread)/256
}

// ContentSecurityPolicy returns the value of that header, which allows only what the
// page needs. It must not be changed.
func (r *Room) ContentSecurityPolicy() []string { return r.policy }

//go:embed style.css
var style string

//go:embed work.js
var workScript string

func (r *Room) contentPolicy() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	form, script := "'none'", ""
	if r.HasStep() {
		form = "'self'"
	}
	if r.options.Step == ProofOfWork {
		script = "; script-src " + hash(workScript) + "; worker-src blob:"
	}
	return "default-src 'none'; style-src " + hash(style) + script + "; base-uri 'none'; form-action " + form
}

// A page is the page in one language, cut where the facts of a request go.
type page struct {
	texts    texts.Texts // as HTML
	header   []string    // the value of Content-Language
	head     string      // up to the wait
	reload   string      // after the wait
	placing  string      // that the visitor keeps its place
	retry    string
	contact  string // before the contact
	refer    string // before the reference
	stepHead string // before the challenge; "" without a step
	stepPath string // between the challenge and the path
	stepEnd  string
}

func (r *Room) newPage(l *texts.Language) *page {
	t := l.Escaped(html.EscapeString)
	p := &page{texts: t, header: l.Header}
	before, after, _ := strings.Cut(t.Wait, "{wait}")
	p.head = `<!doctype html>
<html lang="` + l.Tag + `" dir="` + l.Dir + `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>` + t.Busy + `</title>
<style>` + style + `</style>
</head>
<body>
<main>
<h1>` + t.Busy + `</h1>
<p>` + t.BusyReason + `</p>
<p role="status">` + before + "<strong>"
	p.reload = "</strong>" + after + " " + t.Reload
	p.placing = " " + t.KeepsPlace
	p.retry = "</p>\n<p><a href=\"\">" + t.Retry + "</a></p>\n"
	p.contact = "<dt>" + t.Contact + "</dt><dd>"
	p.refer = "<dt>" + t.Reference + "</dt><dd><code>"
	if !r.HasStep() {
		return p
	}
	form, text, button, script := "<form ", t.Step, "\n<button>"+t.Button+"</button>", ""
	if r.options.Step == ProofOfWork {
		form = `<form id="work" hidden data-bits="` + strconv.Itoa(r.options.Difficulty) + `" `
		text, button = t.Work, "\n<input type=\"hidden\" name=\"answer\">"
		script = "<script>" + workScript + "</script>\n"
	}
	p.stepHead = form + `method="post" action="` + StepPath + "\">\n<p role=\"status\">" + text +
		"</p>\n<input type=\"hidden\" name=\"challenge\" value=\""
	p.stepPath = "\">\n<input type=\"hidden\" name=\"to\" value=\""
	p.stepEnd = "\">" + button + "\n</form>\n" + script
	return p
}

// A Visit is what the page shows to one visitor.
type Visit struct {
	Languages []string      // the values of Accept-Language
	Wait      time.Duration // expected
	Waits     bool          // the visitor keeps its place
	Contact   string        // HTML; "" means none
	Reference string        // letters and digits

	// Visitor is offered the room's step, if it is not 0: see Passed. Target is the
	// path and query that it asked for, and Now the time of day.
	Visitor uint64
	Target  string
	Now     time.Time
}

// AppendPage appends the page for a visit to b. It returns the result, and the value
// of Content-Language, which must not be changed.
func (r *Room) AppendPage(b []byte, v *Visit) (page []byte, language []string) {
	p := r.pages[r.options.Texts.Choose(v.Languages)]
	b = append(b, p.head...)
	b = p.texts.AppendDuration(b, waitOf(v.Wait))
	b = append(b, p.reload...)
	if v.Waits {
		b = append(b, p.placing...)
	}
	b = append(b, p.retry...)
	if v.Visitor != 0 && p.stepHead != "" {
		b = append(b, p.stepHead...)
		b = r.appendChallenge(b, v.Visitor, v.Now)
		b = append(b, p.stepPath...)
		b = append(b, html.EscapeString(ReturnPath(v.Target))...)
		b = append(b, p.stepEnd...)
	}
	b = append(b, "<dl>\n"...)
	if v.Contact != "" {
		b = append(b, p.contact...)
		b = append(b, v.Contact...)
		b = append(b, "</dd>\n"...)
	}
	b = append(b, p.refer...)
	b = append(b, v.Reference...)
	return append(b, "</code></dd>\n</dl>\n</main>\n</body>\n</html>\n"...), p.header
}

// waitOf returns a wait in seconds as it is shown: 2, or rounded up to a multiple of
// 5, since it is an estimate.
func waitOf(d time.Duration) int64 {
	sec := int64((d + time.Second - 1) / time.Second)
	if sec <= 2 {
		return 2
	}
	return (sec + 4) / 5 * 5
}
