package docs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/httpguard/httpguardtest"
	"fairshare/memlimit"
	"fairshare/site"
)

var app = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })

func oneLimit() http.Handler {
	return httpguard.Limit(100, time.Minute)(app)
}

func ownPolicy() http.Handler {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{
			Name:  "at once",
			Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 20},
		}, {
			Name:  "two a minute",
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Minute},
		},
	}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{})
	if err != nil {
		log.Fatal(err) // names the rule and its error
	}
	return httpguard.Middleware(guard, httpguard.Options{Contact: "ops@example.org"})(app)
}

func behindProxy(guard *fairshare.Guard) http.Handler {
	preset, err := clientaddr.Behind("nginx") // or cloudflare, haproxy, …
	if err != nil {
		log.Fatal(err)
	}
	resolver, err := clientaddr.New(preset.Config)
	if err != nil {
		log.Fatal(err)
	}
	return httpguard.Middleware(guard, httpguard.Options{
		Client: func(r *http.Request) httpguard.Client {
			found := resolver.Resolve(r.RemoteAddr, r.Header)
			return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy, Via: found.Via}
		},
	})(app)
}

func fromPolicyFile(ctx context.Context) error {
	s, err := site.Open(ctx, "policy.yaml", site.Options{})
	if err != nil {
		log.Fatal(err) // names the line, and often a fix
	}
	defer s.Close()
	return http.ListenAndServe(":8080", s.Handler(app))
}

var _ = fromPolicyFile // only compiled: it listens until the program ends; ExampleOpen of site runs

func perUser(userOf func(*http.Request) string) http.Handler {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "thousand an hour for a user",
		Limit: &fairshare.Limit{
			Resource: fairshare.Requests, N: 1000, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}},
		},
	}}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return httpguard.Middleware(guard, httpguard.Options{
		Values: func(r *http.Request) map[string]string {
			return map[string]string{"user": userOf(r)} // "" counts by address
		},
	})(app)
}

func login(ctx context.Context, guard *fairshare.Guard, user string, check func() bool) error {
	request := fairshare.Request{Values: map[string]string{"user": user}}
	err := guard.Do(ctx, &request, func(context.Context) (fairshare.Outcome, error) {
		if !check() {
			return fairshare.Outcome{Status: http.StatusUnauthorized}, errors.New("wrong password")
		}
		return fairshare.Outcome{Status: http.StatusOK}, nil
	})
	if refused := (*fairshare.RefusedError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("too many attempts, try again in %v", refused.Wait)
	}
	return err
}

func readExchange(w http.ResponseWriter, r *http.Request) {
	exchange := httpguard.From(r.Context()) // needs Options.Context
	for _, limit := range exchange.Limits() {
		fmt.Fprintln(w, limit.Rule.Name, "has", limit.Remaining, "left")
	}
	exchange.ReportCost(12) // for limits of cost
}

func hooks(guard *fairshare.Guard, logger *slog.Logger, countPassed func(status int)) http.Handler {
	return httpguard.Middleware(guard, httpguard.Options{
		Refused: func(report *httpguard.Report) { logger.Info("request refused", "report", report) },
		Passed:  func(completion *httpguard.Completion) { countPassed(completion.Status) },
		Failed:  func(r *http.Request, err error) { logger.ErrorContext(r.Context(), "limits", "error", err) },
	})(app)
}

func TestRefusedPage(t *testing.T) {
	handler := httpguard.Middleware(httpguardtest.Refusing(90*time.Second), httpguard.Options{})(app)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "90" {
		t.Errorf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

// Each piece of code on the page is a piece of this file.
func TestLibraryPageShowsCodeThatCompiles(t *testing.T) {
	page, err := os.ReadFile("library.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("library_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tested := withoutIndent(string(file))
	pieces := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(pieces) < 7 {
		t.Fatalf("the page shows %d pieces of code", len(pieces))
	}
	for _, piece := range pieces {
		if !strings.Contains(tested, withoutIndent(piece[1])) {
			t.Errorf("library_test.go does not contain\n%s", piece[1])
		}
	}
}

func withoutIndent(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

func TestPolicyOfThePage(t *testing.T) {
	for name, handler := range map[string]http.Handler{
		"one limit": oneLimit(), "policy": ownPolicy(),
		"behind a proxy": behindProxy(httpguardtest.Passing()),
		"by user":        perUser(func(*http.Request) string { return "ann" }),
	} {
		var codes []int
		for range 3 {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			codes = append(codes, w.Code)
		}
		last := http.StatusOK
		if name == "policy" {
			last = http.StatusTooManyRequests
		}
		if codes[1] != http.StatusOK || codes[2] != last {
			t.Errorf("%s: %v, want %d at the end", name, codes, last)
		}
	}
}

func TestLoginAttemptsOfThePageAreLimited(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "wrong passwords",
		Limit: &fairshare.Limit{
			Resource: fairshare.Errors, N: 2, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}},
		},
	}}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for range 3 {
		err := login(t.Context(), guard, "ann", func() bool { return false })
		messages = append(messages, fmt.Sprint(err))
	}
	if messages[1] != "wrong password" || !strings.HasPrefix(messages[2], "too many attempts, try again in") {
		t.Errorf("%q", messages)
	}
}

func TestHandlerOfThePageReadsWhatIsLeft(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "two a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Minute},
	}}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	httpguard.Middleware(guard, httpguard.Options{Context: true})(http.HandlerFunc(readExchange)).
		ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if got := w.Body.String(); got != "two a minute has 1 left\n" {
		t.Errorf("%q", got)
	}
}

func TestHooksOfThePageAreCalled(t *testing.T) {
	var logged strings.Builder
	passed := 0
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	for _, guard := range []*fairshare.Guard{httpguardtest.Passing(), httpguardtest.Refusing(time.Second)} {
		hooks(guard, logger, func(int) { passed++ }).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	if passed != 1 || !strings.Contains(logged.String(), "request refused") {
		t.Errorf("%d passed, logged %q", passed, &logged)
	}
}
