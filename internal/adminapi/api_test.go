package adminapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"fairshare/httpguard"
	"fairshare/internal/adminapi"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
)

const policy = `rules:
  - {name: ten a minute, limit: {requests: 10, per: 1m, by: addr}}
  - {name: admin, match: {path: /admin}, block: true}
`

// A site is a server with its API.
type site struct {
	t      *testing.T
	api    http.Handler
	schema *jsonschema.Compiler
}

func open(t *testing.T, mayAct bool) *site {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	p, err := livepolicy.New(t.Context(), file, livepolicy.Options{Clock: httpguard.NewClock(), Folder: t.TempDir(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	t.Cleanup(func() { p.Stop(); p.Close() })
	c := console.New(console.Options{Policy: p, Traffic: traffic.New(p.Now()), Version: "1", Reload: reload})
	rt := p.Current()
	guard := httpguard.New(rt.Guard, p.GuardOptions(rt, httpguard.Options{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	for i := range 15 {
		r := httptest.NewRequest("GET", []string{"/?password=secret", "/admin"}[i/14], nil)
		r.Header.Set("User-Agent",
			"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html) <script>\xff")
		guard.ServeHTTP(httptest.NewRecorder(), r) // from 192.0.2.1
	}
	c.Policy.FlushReports()
	c.Traffic.Tick(p.Now(), p.Wall(p.Now()), traffic.Load{Waiting: 1})
	s := &site{t: t, api: adminapi.New(c, func(*http.Request) bool { return mayAct }),
		schema: jsonschema.NewCompiler()}
	status, text := s.send(httptest.NewRequest("GET", "/api/v1/openapi.json", nil))
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil || status != 200 {
		t.Fatalf("%d %v", status, err)
	}
	s.schema.AssertFormat()
	if err := s.schema.AddResource("https://a.example/openapi.json", document); err != nil {
		t.Fatal(err)
	}
	return s
}

// reload is a reload with a plan that changes one rule.
func reload(_ context.Context, plan string, apply bool) (*console.Reload, error) {
	if apply && plan != "7" {
		return nil, console.ErrChanged
	}
	r := console.NewReload("/etc/site.yaml")
	r.SetRules(&policyfile.Changes{Changed: []policyfile.RuleChange{{Name: "admin", Was: "a", Now: "b"}}})
	r.Plan, r.Applied = "7", apply
	return r, nil
}

func (s *site) send(r *http.Request) (status int, body string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		s.t.Errorf("%s %s: content type %q", r.Method, r.URL, kind)
	}
	return w.Code, string(text)
}

// check checks an answer against the description.
func (s *site) check(schema, answer string) {
	s.t.Helper()
	compiled, err := s.schema.Compile("https://a.example/openapi.json#/components/schemas/" + schema)
	if err != nil {
		s.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := compiled.Validate(value); err != nil {
		s.t.Errorf("%s: %v\n%s", schema, err, answer)
	}
}

func TestAnswersAreAsDescribed(t *testing.T) {
	s := open(t, true)
	described := map[string]bool{}
	paths := adminapi.Description()["paths"].(map[string]any)
	for _, c := range []struct{ request, schema string }{
		{"now", "Now"}, {"series", "Series"}, {"series?seconds=3600", "Series"}, {"top", "TopList"},
		{"top?by=agent&sort=refused&window=1h", "TopList"}, {"client?client=192.0.2.1", "Client"},
		{"client?client=2001:db8::1", "Client"}, {"client?client=192.0.2.0/24", "Client"},
		{"client?client=googlebot", "Client"}, {"explain?client=192.0.2.1&path=/admin", "Explanation"},
		{"changes", "Reload"}, {"members", "Group"}, {"rules", "Rules"}, {"history?key=192.0.2.1", "History"},
		{"history?by=owner&key=AS64500&span=2d", "History"},
		{"history?by=fleet&key=x", "History"}, {"history?by=bot&key=googlebot", "History"},
		{"history?by=network&key=192.0.2.0/24", "History"}, {"bots", "Bots"}, {"bans", "Bans"}, {"journal", "Journal"},
		{"journal?client=192.0.2.1&rule=admin&limit=5", "Journal"}, {"journal?id=0123456789", "Journal"},
	} {
		status, body := s.send(httptest.NewRequest("GET", adminapi.Prefix+c.request, nil))
		if status != 200 {
			t.Errorf("%s: %d %s", c.request, status, body)
			continue
		}
		s.check(c.schema, body)
		if strings.Contains(body, "secret") {
			t.Errorf("%s shows a query", c.request)
		}
		path, _, _ := strings.Cut(c.request, "?")
		described[adminapi.Prefix+path] = true
	}
	status, body := s.post(`{"do": "ban", "client": "192.0.2.1", "for_seconds": 3600, "reason": "too many pages"}`,
		nil)
	if status != 200 || !strings.Contains(body, "banned: 192.0.2.1 until") {
		t.Errorf("%d %s", status, body)
	}
	s.check("Result", body)
	described[adminapi.Prefix+"actions"] = true
	r := httptest.NewRequest("POST", adminapi.Prefix+"reload", strings.NewReader(`{"plan": "7"}`))
	r.Header.Set("Content-Type", "application/json")
	if status, body = s.send(r); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	s.check("Reload", body)
	described[adminapi.Prefix+"reload"] = true
	for path := range paths {
		if !described[path] {
			t.Errorf("%s is described and not tested", path)
		}
	}
	_, body = s.send(httptest.NewRequest("GET", adminapi.Prefix+"bans", nil))
	if s.check("Bans", body); !strings.Contains(body, `"reason":"too many pages"`) {
		t.Errorf("bans: %s", body)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	s := open(t, true)
	for _, c := range []struct {
		method, request string
		status          int
	}{
		{"GET", "nothing", 404}, {"GET", "", 404}, {"POST", "now", 405}, {"GET", "actions", 405},
		{"GET", "client", 400}, {"GET", "client?client=203.0.113.*", 400}, {"GET", "now?a=b", 400},
		{"GET", "top?by=x", 400}, {"GET", "top?sort=x", 400}, {"GET", "top?window=2m", 400}, {"GET",
			"top?by=client&by=path", 400},
		{"GET", "series?seconds=0", 400}, {"GET", "series?seconds=9999999", 400}, {"GET", "journal?limit=x", 400},
		{"GET", "explain?client=192.0.2.0/24", 400}, {"GET", "now?%zz", 400}, {"GET", "now?a;b", 400},
	} {
		status, body := s.send(httptest.NewRequest(c.method, adminapi.Prefix+c.request, nil))
		if status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.request, status, c.status, body)
		}
		s.check("Error", body)
	}
	for body, want := range map[string]int{"": 400, "{}": 400, "[]": 400, `{"do":"ban"}`: 400,
		`{"do":"ban","client":"203.0.113.9"} x`: 400, `{"do":"ban","client":"203.0.113.9","x":1}`: 400,
		`{"do":"ban","client":"127.0.0.1"}`: 409, `{"do":"unban","client":"203.0.113.9"}`: 409,
		`{"do":"ban","client":"203.0.113.9","reason":"` + strings.Repeat("x", 1<<16) + `"}`: 413} {
		status, answer := s.post(body, nil)
		if status != want {
			t.Errorf("%.60s: %d, want %d: %s", body, status, want, answer)
		}
		s.check("Error", answer)
	}
}

func (s *site) post(body string, header map[string]string) (status int, answer string) {
	s.t.Helper()
	r := httptest.NewRequest("POST", adminapi.Prefix+"actions", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return s.send(r)
}

func TestOtherSitesCannotAct(t *testing.T) {
	const ban = `{"do":"ban","client":"203.0.113.9"}`
	s := open(t, true)
	for _, c := range []struct {
		header map[string]string
		status int
	}{
		{map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		{map[string]string{"Origin": "https://evil.example"}, 403},
		{map[string]string{"Origin": "null"}, 403},
		{map[string]string{"Origin": "http://example.com:81"}, 403},
		{map[string]string{"Content-Type": "text/plain"}, 415},
		{map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{map[string]string{"Content-Type": "application/json; charset=utf-8"}, 200},
		{map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://example.com"}, 200},
		{nil, 200},
	} {
		if status, body := s.post(ban, c.header); status != c.status {
			t.Errorf("%v: %d %s", c.header, status, body)
		}
	}
	reader := open(t, false)
	if status, body := reader.post(ban, nil); status != 403 || !strings.Contains(body, "--admin-token-file") {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, _ := reader.send(httptest.NewRequest("GET", adminapi.Prefix+"now", nil)); status != 200 {
		t.Errorf("without a token, now: %d", status)
	}
}

// The description is OpenAPI: each reference leads somewhere, and each type is used.
func TestDescriptionIsWhole(t *testing.T) {
	text, err := json.Marshal(adminapi.Description())
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	types := document["components"].(map[string]any)["schemas"].(map[string]any)
	used := map[string]bool{}
	var visit func(value reflect.Value)
	visit = func(value reflect.Value) {
		switch value.Kind() {
		case reflect.Interface:
			visit(value.Elem())
		case reflect.Slice:
			for i := range value.Len() {
				visit(value.Index(i))
			}
		case reflect.Map:
			for _, key := range value.MapKeys() {
				if ref, ok := value.MapIndex(key).Interface().(string); ok && key.String() == "$ref" {
					name, _ := url.PathUnescape(strings.TrimPrefix(ref, "#/components/schemas/"))
					used[name] = true
				}
				visit(value.MapIndex(key))
			}
		}
	}
	visit(reflect.ValueOf(document))
	for name := range used {
		if types[name] == nil {
			t.Errorf("type %s is not described", name)
		}
	}
	for name := range types {
		if !used[name] {
			t.Errorf("type %s is not used", name)
		}
	}
	if document["openapi"] != "3.1.0" || len(used) < 15 {
		t.Errorf("%d types", len(used))
	}
}
