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
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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

	// Languages has texts by language tag (BCP 47). They replace built-in ones.
	// Texts that are empty are the built-in ones of the language, or else English.
	// The map must not be changed.
	Languages map[string]Texts

	// Key signs the challenges of a step. Machines with the same key accept each
	// other's. nil means a random key, which ends with the Room.
	Key []byte
}

// DefaultAfter is what a zero Options.After means. A page with content after five
// seconds is better than one that says "wait" after two: the second visit would cost
// two more seconds, and another request.
const DefaultAfter = 5 * time.Second

// MaxLanguages is the most languages that Options may have.
const MaxLanguages = 64

// A Room makes pages. It is safe for concurrent use.
type Room struct {
	options Options
	key     [sha256.Size]byte
	pages   []*page // the first is in English
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
	all := BuiltIn()
	for tag, own := range opts.Languages {
		base := all[strings.ToLower(tag)]
		own.fill(&base)
		all[tag] = own
		if lower := strings.ToLower(tag); lower != tag {
			delete(all, lower)
		}
	}
	english := all[English]
	for tag := range opts.Languages {
		if strings.EqualFold(tag, English) {
			english = all[tag]
			delete(all, tag)
		}
	}
	delete(all, English)
	r.pages = append(r.pages, r.newPage(English, &english))
	for _, tag := range slices.Sorted(maps.Keys(all)) {
		texts := all[tag]
		texts.fill(&english)
		r.pages = append(r.pages, r.newPage(tag, &texts))
	}
	r.policy = []string{r.contentPolicy()}
	return r, nil
}

// Check returns the first option that is out of its bounds.
func (o *Options) Check() error {
	if err := o.checkStep(); err != nil {
		return err
	}
	if len(o.Languages) > MaxLanguages {
		return fmt.Errorf("waiting room: more than %d languages", MaxLanguages)
	}
	seen := map[string]bool{}
	for _, tag := range slices.Sorted(maps.Keys(o.Languages)) {
		lower := strings.ToLower(tag)
		if !CheckLanguage(tag) || seen[lower] {
			return fmt.Errorf("waiting room: %q is not a language tag, or there twice", tag)
		}
		seen[lower] = true
		texts := o.Languages[tag]
		for _, t := range texts.All() {
			if *t.Text == "" {
				continue
			}
			if err := CheckText(t.Key, *t.Text); err != nil {
				return fmt.Errorf("waiting room: %s in %s: %w", t.Key, tag, err)
			}
		}
	}
	if o.Key != nil && len(o.Key) < 16 {
		return errors.New("waiting room: a key needs 16 bytes")
	}
	return nil
}

// fill replaces texts that are empty.
func (t *Texts) fill(by *Texts) {
	others := by.All()
	for i, own := range t.All() {
		if *own.Text == "" {
			*own.Text = *others[i].Text
		}
	}
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
	lang     string
	header   []string  // the value of Content-Language
	head     string    // up to the wait
	seconds  [2]string // before and after the number
	minutes  [2]string
	reload   string // after the wait
	placing  string // that the visitor keeps its place
	retry    string
	contact  string // before the contact
	refer    string // before the reference
	stepHead string // before the challenge; "" without a step
	stepPath string // between the challenge and the path
	stepEnd  string
}

func (r *Room) newPage(tag string, t *Texts) *page {
	e := html.EscapeString
	p := &page{lang: tag, header: []string{tag}}
	before, after, _ := strings.Cut(e(t.Wait), "{wait}")
	p.head = `<!doctype html>
<html lang="` + tag + `" dir="` + direction(tag) + `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>` + e(t.Title) + `</title>
<style>` + style + `</style>
</head>
<body>
<main>
<h1>` + e(t.Title) + `</h1>
<p>` + e(t.Reason) + `</p>
<p role="status">` + before + "<strong>"
	p.seconds[0], p.seconds[1], _ = strings.Cut(e(t.Seconds), "{n}")
	p.minutes[0], p.minutes[1], _ = strings.Cut(e(t.Minutes), "{n}")
	p.reload = "</strong>" + after + " " + e(t.Reload)
	p.placing = " " + e(t.KeepsPlace)
	p.retry = "</p>\n<p><a href=\"\">" + e(t.Retry) + "</a></p>\n"
	p.contact = "<dt>" + e(t.Contact) + "</dt><dd>"
	p.refer = "<dt>" + e(t.Reference) + "</dt><dd><code>"
	if !r.HasStep() {
		return p
	}
	form, text, button, script := "<form ", t.Step, "\n<button>"+e(t.Button)+"</button>", ""
	if r.options.Step == ProofOfWork {
		form = `<form id="work" hidden data-bits="` + strconv.Itoa(r.options.Difficulty) + `" `
		text, button = t.Work, "\n<input type=\"hidden\" name=\"answer\">"
		script = "<script>" + workScript + "</script>\n"
	}
	p.stepHead = form + `method="post" action="` + StepPath + "\">\n<p role=\"status\">" + e(text) +
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
	p := r.language(v.Languages)
	b = append(b, p.head...)
	n, unit := waitOf(v.Wait), &p.seconds
	if n >= 120 {
		n, unit = (n+59)/60, &p.minutes
	}
	b = append(b, unit[0]...)
	b = strconv.AppendInt(b, n, 10)
	b = append(b, unit[1]...)
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
