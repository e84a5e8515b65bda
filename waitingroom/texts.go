package waitingroom

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Texts are all texts of the page in one language. A text that is empty is shown
// in English. They are plain text, not HTML.
type Texts struct {
	Title   string // of the page, and its heading
	Reason  string // why there is a wait
	Wait    string // with {wait}, which is Seconds or Minutes
	Seconds string // with {n}: 2, or a multiple of 5 up to 115
	Minutes string // with {n}, from 2
	Reload  string // the page reloads itself
	Retry   string // the link to the same page
	Step    string // what the button is for
	Button  string // the label of the button
	Work    string // shown while the browser computes
	Contact string // the label of the contact

	Reference string // the label of the reference

	KeepsPlace string // the visitor keeps its place
}

// A Text is one of the Texts by its key in policy files.
type Text struct {
	Key  string
	Text *string
}

// All returns the texts with their keys.
func (t *Texts) All() []Text {
	return []Text{
		{"title", &t.Title}, {"reason", &t.Reason}, {"wait", &t.Wait}, {"seconds", &t.Seconds},
		{"minutes", &t.Minutes}, {"reload", &t.Reload}, {"place", &t.KeepsPlace}, {"retry", &t.Retry},
		{"step", &t.Step}, {"button", &t.Button}, {"work", &t.Work}, {"contact", &t.Contact},
		{"reference", &t.Reference},
	}
}

// MaxText is the most bytes that a text may have.
const MaxText = 1000

// placeholder returns what a text must contain; "" means nothing.
func placeholder(key string) string {
	switch key {
	case "wait":
		return "{wait}"
	case "seconds", "minutes":
		return "{n}"
	}
	return ""
}

// CheckText returns why the text of a key cannot be used.
func CheckText(key, text string) error {
	switch hole := placeholder(key); {
	case text == "":
		return errors.New("the text is empty")
	case len(text) > MaxText:
		return fmt.Errorf("the text is longer than %d bytes", MaxText)
	case !utf8.ValidString(text):
		return errors.New("the text is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("control characters and line ends are not allowed")
	case hole != "" && strings.Count(text, hole) != 1:
		return fmt.Errorf("the text must contain %s once", hole)
	}
	return nil
}

// BuiltIn returns the built-in texts by language.
func BuiltIn() map[string]Texts { return maps.Clone(builtIn) }

var builtIn = map[string]Texts{
	"en": {
		Title:      "This site is busy",
		Reason:     "More pages are being requested than this site can answer at once.",
		Wait:       "Expected wait: {wait}.",
		Seconds:    "about {n} seconds",
		Minutes:    "about {n} minutes",
		Reload:     "This page tries again by itself.",
		KeepsPlace: "You keep your place in the line.",
		Retry:      "Try again now",
		Step:       "If you press this button, you will probably get in sooner.",
		Button:     "Get in sooner",
		Work:       "Your browser is doing a short calculation, so that you get in sooner.",
		Contact:    "Contact",
		Reference:  "Reference",
	},
	"de": {
		Title:      "Diese Website ist ausgelastet",
		Reason:     "Gerade werden mehr Seiten abgerufen, als diese Website gleichzeitig ausliefern kann.",
		Wait:       "Voraussichtliche Wartezeit: {wait}.",
		Seconds:    "etwa {n} Sekunden",
		Minutes:    "etwa {n} Minuten",
		Reload:     "Diese Seite versucht es von selbst noch einmal.",
		KeepsPlace: "Sie behalten Ihren Platz in der Warteschlange.",
		Retry:      "Jetzt noch einmal versuchen",
		Step:       "Wenn Sie auf diese Schaltfläche klicken, kommen Sie wahrscheinlich früher an die Reihe.",
		Button:     "Früher an die Reihe kommen",
		Work:       "Ihr Browser führt eine kurze Berechnung aus, damit Sie früher an die Reihe kommen.",
		Contact:    "Kontakt",
		Reference:  "Referenz",
	},
	"fr": {
		Title:      "Ce site est très sollicité",
		Reason:     "Ce site reçoit en ce moment plus de demandes de pages qu’il ne peut en traiter à la fois.",
		Wait:       "Temps d’attente estimé\u00A0: {wait}.",
		Seconds:    "environ {n} secondes",
		Minutes:    "environ {n} minutes",
		Reload:     "Cette page se recharge d’elle-même.",
		KeepsPlace: "Vous gardez votre place dans la file d’attente.",
		Retry:      "Réessayer maintenant",
		Step:       "Si vous appuyez sur ce bouton, votre tour viendra probablement plus tôt.",
		Button:     "Passer plus tôt",
		Work:       "Votre navigateur effectue un court calcul pour que votre tour vienne plus tôt.",
		Contact:    "Contact",
		Reference:  "Référence",
	},
}
