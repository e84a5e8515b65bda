package httpguard_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/texts"
)

const acceptsHTML = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// Pages are in the language that a client prefers; text and JSON are in English. Texts of an operator
// are escaped for each form.
func TestRefusalsAreInTheLanguageOfTheClient(t *testing.T) {
	set, err := texts.New(map[string]texts.Texts{
		"de": {RequestsReason: `Zu viel <b>"Last"</b>`},
		"en": {Requests: `Slow "down"`, PleaseWait: `Wait <{wait}>\.`},
		"ar": {Requests: "طلبات كثيرة"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := refused(t, fairshare.Rule{Name: "a"}, httpguard.Options{Contact: "shop@example.org", Texts: set})
	for _, test := range []struct {
		language, root, content string
		holds                   []string
	}{
		{"", `<html lang="en" dir="ltr">`, "en", []string{"<h1>Slow &#34;down&#34;</h1>",
			`Wait &lt;<strong>60 minutes</strong>&gt;\.`, "Is this a mistake?"}},
		{"de-AT,en;q=0.5", `<html lang="de" dir="ltr">`, "de", []string{"<h1>Zu viele Anfragen</h1>",
			"Zu viel &lt;b&gt;&#34;Last&#34;&lt;/b&gt;", "<strong>60 Minuten</strong>", "<dt>Kontakt</dt>"}},
		{"fr", `<html lang="fr" dir="ltr">`, "fr", []string{"<strong>60 minutes</strong>", "<dt>Référence</dt>"}},
		{"ar", `<html lang="ar" dir="rtl">`, "ar", []string{"<h1>طلبات كثيرة</h1>"}},
	} {
		w := request(h, "GET", "/", "Accept", acceptsHTML, "Accept-Language", test.language)
		for _, text := range append(test.holds, test.root) {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: no %s in %s", test.language, text, w.Body)
			}
		}
		if got := w.Header().Get("Content-Language"); got != test.content {
			t.Errorf("%s: Content-Language %q", test.language, got)
		}
	}

	w := request(h, "GET", "/", "Accept", "*/*", "Accept-Language", "de")
	if body := w.Body.String(); !strings.HasPrefix(body,
		`429 Slow "down": You have sent too many requests. Wait <60 minutes>\. Rule: a.`) ||
		w.Header()["Content-Language"] != nil {
		t.Errorf("%v %s", w.Header(), body)
	}
	w = request(h, "GET", "/", "Accept", "application/json", "Accept-Language", "de")
	var problem struct{ Title, Detail string }
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Title != `Slow "down"` ||
		problem.Detail != `You have sent too many requests. Wait <60 minutes>\.` {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// What a program writes itself has no language of the usual answer.
func TestOwnAnswersHaveNoLanguage(t *testing.T) {
	own := refused(t, fairshare.Rule{Name: "a", Answer: &fairshare.Answer{Body: "<p>no</p>"}}, httpguard.Options{})
	program := refused(t, fairshare.Rule{Name: "a"}, httpguard.Options{
		Answer: func(w http.ResponseWriter, _ *http.Request, _ *httpguard.Report) { w.Write([]byte("no")) }})
	for _, h := range []http.Handler{own, program} {
		w := request(h, "GET", "/", "Accept", acceptsHTML, "Accept-Language", "de")
		if w.Code != 429 || w.Header()["Content-Language"] != nil {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

// While nothing can be counted, a browser gets a page in its language, and a program a line.
func TestUncountedRequestsGetAnAnswerInTheirLanguage(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{limit("a", requests(1, time.Minute))}}
	g := guardFor(t, policy, func(l fairshare.Limiter) fairshare.Limiter { return &faulty{Limiter: l, take: true} })
	h := httpguard.Middleware(g, atNoon(nil))(welcome)
	for _, test := range []struct{ accept, contentType, language, holds string }{
		{acceptsHTML, "text/html; charset=utf-8", "de", "<p>Bitte warten Sie <strong>5 Sekunden</strong>."},
		{"*/*", "text/plain; charset=utf-8", "",
			"503 Service unavailable: This site cannot count requests at the moment. Please wait 5 seconds.\n"},
		{"application/json", "text/plain; charset=utf-8", "", "503 Service unavailable: "},
	} {
		w := request(h, "GET", "/", "Accept", test.accept, "Accept-Language", "de")
		body := w.Body.String()
		if w.Code != 503 || w.Header().Get("Retry-After") != "5" ||
			w.Header().Get("Content-Type") != test.contentType ||
			w.Header().Get("Content-Language") != test.language || !strings.Contains(body, test.holds) ||
			strings.Contains(body, "Reference") || strings.Contains(body, "<dl>") {
			t.Errorf("%s: %d %v %s", test.accept, w.Code, w.Header(), body)
		}
	}
}
