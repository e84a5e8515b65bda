package fairshare

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadings(t *testing.T) {
	for _, c := range []struct{ target, want string }{
		{"/login", "/login"},
		{"/a//b", "/a/b"},
		{"/a%20b%C3%A9", "/a bé"},
		{"//x/login", "/login /x/login"},
		{"///x/login", "/login /x/login"},
		{`/\x/login`, `/\x/login /login /x/login`},
		{`\\x\login`, `/ /login /x/login \\x\login \login`},
		{"//static", "/ /static"},
		{"http://h/login", "/login"},
		{"http://h//x/login", "/login /x/login"},
		{"http://h", " / /h /http:/h http:/h"},
		{"/login;x=1", "/login /login;x=1"},
		{"/a;b/login", "/a/login /a;b/login"},
		{"/static/..;/login", "/login /static/../login /static/..;/login"},
		{"/static/../login", "/login /static/../login"},
		{"/static//../login", "/login /static/../login /static/login"},
		{"/static/%2e%2e/login", "/login /static/../login"},
		{"/static/..%2flogin", "/login /static/..%2flogin /static/../login"},
		{`/static\..\login`, `/login /static/../login /static\..\login`},
		{"/static%5clogin", `/static%5clogin /static/login /static\login`},
		{"/%252flogin", "/ /%252flogin /%2flogin /login"},
		{"/login%2ephp", "/login.php"},
		{"/login%00.css", "/login /login\x00.css /login%00.css"},
		{"/login%09", "/login /login\t /login%09"},
		{"/lo\tgin", "/lo\tgin /login"},
		{"/login%3fx.css", "/login /login%3fx.css /login?x.css"},
		{"/login#x.css", "/login /login#x.css"},
		{"/login.php/x.css", "/login.php /login.php/x.css /x.css"},
		{"/index.php/login", "/index.php /index.php/login /login"},
		{"/login.php.", "/login.php /login.php."},
		{"/login.php%20", "/login.php /login.php "},
		{"/login.php::$DATA", "/login.php /login.php::$DATA"},
		{"/%c0%aflogin", "/ /login /\xc0\xaflogin"},
		{"/%e0%80%aflogin", "/ /login /\xe0\x80\xaflogin"},
		{"/%u006cogin", "/%u006cogin /login"},
		{"/%6c%6fgin", "/login"},
		{"/50%-off", "/50%-off"},
	} {
		var req Request
		req.SetTarget(c.target)
		paths, complete := req.Readings()
		if got := strings.Join(paths, " "); got != c.want || !complete {
			t.Errorf("%q: %q, complete %v; want %q", c.target, got, complete, c.want)
		}
		if req.OddPath != (len(paths) > 1) {
			t.Errorf("%q has %d readings and is odd: %v", c.target, len(paths), req.OddPath)
		}
	}
}

// The readings of any path are few and small, whatever is sent.
func TestReadingsAreBounded(t *testing.T) {
	for _, target := range []string{
		"/" + strings.Repeat("%25", 10000) + "41",
		"/" + strings.Repeat("a.php/", 5000),
		strings.Repeat("/;", 15000),
		strings.Repeat(`\`, 30000),
		"/" + strings.Repeat("..;/", 8000),
		"//" + strings.Repeat("x//y;a/%252e%252e/.%5c./z.php/%00#%3f ./", 20),
		strings.Repeat("/%c0%ae%c0%ae", 2000),
	} {
		var req Request
		req.SetTarget(target)
		size := 0
		paths, complete := req.Readings()
		for _, path := range paths {
			size += len(path)
		}
		if len(paths) > maxReadings || size > maxReadingBytes {
			t.Errorf("%.30q: %d readings of %d bytes", target, len(paths), size)
		}
		if complete {
			t.Logf("%.30q has only %d readings", target, len(paths))
		}
		if key := canonicalPath(target); len(key) > len(target)+1 {
			t.Errorf("%.30q: a key of %d bytes", target, len(key))
		}
	}
}

// Whatever the spelling, a limit by path counts a page as one.
func TestSpellingsShareAKey(t *testing.T) {
	for want, spellings := range map[string][]string{
		"/login": {"/login", "/login;a", "/login;b=2", "//x/login", "//y:80/login", `/\z\login`, "/a/../login",
			"/%2e/login", "/login%00a", "/login%3fb",
			"/login#c", "/login.", "/login%20", "/%256cogin", "/%25256cogin", "/lo%09gin", "/a%2f..%2flogin",
			"/x/..;/login", "http://h/login", "http://h//x/login"},
		"/login.php": {"/login.php", "/login.php/", "/login.php/a", "/login.php/b/c.css", "//x/login.php/d",
			"/login.php;e/f", "/login.php::$DATA"},
		"/a/b": {"/a/b", "/a//b", "//h/a/b", "/a%2Fb", `/a\b`, "/a%255cb"},
	} {
		for _, target := range spellings {
			var req Request
			req.SetTarget(target)
			d := decision{guard: &Guard{policy: &Policy{}}, req: &req}
			if got := d.pathKey(); got != want {
				t.Errorf("%q is counted as %q, want %q", target, got, want)
			}
		}
	}
}

// FuzzReadings compares the readings with those of a model that knows no fast
// way: each habit is one regular expression, applied until nothing new comes.
func FuzzReadings(f *testing.F) {
	for _, s := range []string{
		"/", "/a.css?b", "//a/../b", "/%2e%2e/", "/a.php/b", "http://h/a", `\\x\y`, "h:1", "/a;b", "/%c0%af",
		"/%u002f", "/a%00", "/a#b?c", "/%%34%31", "/a. /b", "/..;/x",
		"/x::$DATA", "http://h?x=/a", `http:\\h\a`, "mailto:x", "/a\tb", "//x:80#/y", "/.%2e/", "*", "/%252f",
		"/ .../", "/a.PHTML/b.cgi/c", "//%2f/%5c", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var req Request
		req.SetTarget(target)
		raw, _, _ := strings.Cut(target[authorityEnd(target):], "?")
		if authority := target[:authorityEnd(target)]; authority != "" &&
			(raw == "" || strings.ContainsAny(authority, `?#\`)) {
			raw, _, _ = strings.Cut(target, "?")
		} else if raw == "" || raw == "*" || raw == target && hostPort(raw) {
			return
		}
		want, few := modelReadings(req.Path, raw)
		if !req.OddPath {
			if !slices.Equal(want, []string{req.Path}) {
				t.Fatalf("%q is plain, the model reads %q", target, want)
			}
			return
		}
		got, complete := req.Readings()
		size := 0
		for _, s := range want {
			size += len(s)
		}
		if complete != few && size < maxReadingBytes/4 {
			t.Fatalf("%q: %d readings, complete: %v; the model has %d", target, len(got), complete, len(want))
		}
		if complete && !slices.Equal(got, want) {
			t.Fatalf("%q:\n got %q\nwant %q", target, got, want)
		}
		if !slices.Contains(got, req.Path) {
			t.Fatalf("%q: path %q is none of %q", target, req.Path, got)
		}
	})
}

// modelHabits are what servers do to a path; each may be done at any time.
var modelHabits = []struct {
	what   *regexp.Regexp
	with   func(found string) string
	rooted bool // what is left begins with a slash
}{
	{regexp.MustCompile(`%[0-9A-Fa-f]{2}`), func(found string) string { return modelByte(found[1:]) }, false},
	{regexp.MustCompile(`[\t\r\n]|[\x00-\x20]+$`), nothing, false},
	{regexp.MustCompile(`\\`), slash, false},
	{regexp.MustCompile(`;[^/]*`), nothing, false},
	{regexp.MustCompile(`/+`), slash, false},
	{regexp.MustCompile(`(?s)\?.*`), nothing, true},
	{regexp.MustCompile(`(?s)#.*`), nothing, true},
	{regexp.MustCompile(`(?s)\x00.*`), nothing, true},
	{regexp.MustCompile(`(?s)^[/\\]{2,}[^/\\?#]*`), nothing, true},
	{regexp.MustCompile(`(?s)^[/\\]{2,}[^/?#]*`), nothing, true},
	{regexp.MustCompile(`(?s)^[A-Za-z][A-Za-z0-9+.-]*:`), nothing, false},
	{regexp.MustCompile(`(?s)^([^/\\*]|\*.)`), func(found string) string { return "/" + found }, false},
}

func nothing(string) string { return "" }

func slash(string) string { return "/" }

func modelByte(hex string) string {
	var c byte
	fmt.Sscanf(hex, "%02x", &c)
	return string([]byte{c})
}

var (
	modelScript = regexp.MustCompile(
		`(?i)\.(php[34578]?|phtml|phar|f?cgi|p[ly]|rb|lua|exe|dll|aspx?|as[hm]x|cf[mc]|jspx?)/`)
	modelSegment = regexp.MustCompile(`[^/]+`)
	modelEscape  = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
)

// modelReadings returns the readings of a path, and whether they are so few
// that all are looked at.
func modelReadings(path, raw string) (readings []string, few bool) {
	harmless := modelEscape.ReplaceAllStringFunc(raw, func(found string) string {
		if c := modelByte(found[1:]); !strings.Contains(`/\?#;%`, c) && c[0] >= 0x20 && c[0] != 0x7F {
			return c
		}
		return found
	})
	seen := map[string]bool{}
	var visit func(s string)
	visit = func(s string) {
		if seen[s] || len(seen) > maxReadings {
			return
		}
		seen[s] = true
		for _, habit := range modelHabits {
			next := habit.what.ReplaceAllStringFunc(s, habit.with)
			if habit.rooted && next != s && !strings.HasPrefix(next, "/") && !strings.HasPrefix(next, `\`) {
				next = "/" + next
			}
			visit(next)
		}
		visit(modelOverlong(s))
		visit(modelSegment.ReplaceAllStringFunc(s, modelWindows))
		visit(modelDots(s))
		for _, at := range modelScript.FindAllStringIndex(s, -1) {
			visit(s[:at[1]-1])
			visit(s[at[1]-1:])
		}
	}
	visit(path)
	visit(harmless)
	for s := range seen {
		readings = append(readings, regexp.MustCompile(`/+`).ReplaceAllString(s, "/"))
	}
	slices.Sort(readings)
	return slices.Compact(readings), len(seen) <= maxReadings
}

// modelOverlong finds every ASCII character in its longer forms.
func modelOverlong(s string) string {
	s = regexp.MustCompile(`(?i)%u00[0-9a-f]{2}`).ReplaceAllStringFunc(s,
		func(found string) string { return modelByte(found[4:]) })
	for c := range 0x80 {
		low, high := string([]byte{0x80 | byte(c)&0x3F}), string([]byte{0x80 | byte(c)>>6})
		for _, long := range []string{"\xF0\x80" + high + low, "\xE0" + high + low,
			string([]byte{0xC0 | byte(c)>>6}) + low} {
			s = strings.ReplaceAll(s, long, string([]byte{byte(c)}))
		}
	}
	return s
}

// modelWindows returns the file that Windows opens for a name.
func modelWindows(name string) string {
	file, _, _ := strings.Cut(name, "::$")
	switch trimmed := regexp.MustCompile(`[. ]*$`).ReplaceAllString(file, ""); {
	case trimmed != "":
		return trimmed
	case strings.HasPrefix(file, ".."):
		return ".."
	case strings.HasPrefix(file, "."):
		return "."
	}
	return name
}

// modelDots is remove_dot_segments of RFC 3986 §5.2.4, by segments.
func modelDots(s string) string {
	for _, relative := range []string{"../", "./"} {
		if strings.HasPrefix(s, relative) {
			return modelDots(s[len(relative):])
		}
	}
	if s == "." || s == ".." {
		return ""
	}
	first, rest, found := strings.Cut(s, "/")
	if !found {
		return s
	}
	var out []string
	segments := strings.Split(rest, "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case segment == ".." && len(out) == 0:
			first = ""
		case segment == "..":
			out = out[:len(out)-1]
		case segment != ".":
			out = append(out, segment)
			continue
		}
		if last {
			out = append(out, "")
		}
	}
	if len(out) == 0 {
		return first
	}
	return first + "/" + strings.Join(out, "/")
}
