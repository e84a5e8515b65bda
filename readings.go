package fairshare

import (
	"iter"
	"slices"
	"strings"
)

// Servers disagree about which page a request target names: some decode
// escapes twice, some strip ";…" from each segment, some take "//x" for a
// host, some run the script before "/more". Each such habit is a rewrite of
// the path. The readings of a path are everything that a sequence of rewrites
// makes of it. A path with one reading is plain, any other is odd.
//
// A restriction holds for a request if it matches any reading, a permission
// only if it matches all of them.

// Bounds of the readings of one path. For a path with more of them every
// restriction that looks at the path holds, and no permission.
const (
	maxReadings     = 64
	maxReadingBytes = 64 << 10 // all readings of a path together
)

// maxSteps bounds the rewrites that lead to the canonical reading.
const maxSteps = 16

// Readings returns the paths that servers may take the target for, Path among
// them. complete is false when there are more than a guard looks at.
func (r *Request) Readings() (paths []string, complete bool) {
	if !r.OddPath {
		return []string{r.Path}, true
	}
	paths, complete = closure(r.Path, foldEscapes(r.rawPath))
	for i, s := range paths {
		paths[i] = mergeSlashes(s)
	}
	slices.Sort(paths)
	return slices.Compact(paths), complete
}

// closure returns the strings that rewrites make of the given ones, and
// whether these are all.
func closure(states ...string) (reached []string, complete bool) {
	size := 0
	add := func(s string) bool {
		if slices.Contains(reached, s) {
			return true
		}
		if len(reached) == maxReadings || size+len(s) > maxReadingBytes {
			return false
		}
		reached, size = append(reached, s), size+len(s)
		return true
	}
	for _, s := range states {
		if !add(s) {
			return reached, false
		}
	}
	for i := 0; i < len(reached); i++ {
		for s := range rewrites(reached[i]) {
			if !add(s) {
				return reached, false
			}
		}
	}
	return reached, true
}

// canonicalPath returns one reading of a path. Limits by path count under it,
// so that another spelling of a page is not another allowance.
func canonicalPath(raw string) string {
	s := foldEscapes(raw)
	for range maxSteps {
		next := s
		for next = range rewrites(s) {
			if next != s {
				break
			}
		}
		if next == s {
			break
		}
		s = next
	}
	return mergeSlashes(s)
}

// oddPath reports whether a path has a reading other than itself.
func oddPath(s string) bool {
	merged := mergeSlashes(s)
	for next := range rewrites(s) {
		if mergeSlashes(next) != merged {
			return true
		}
	}
	return false
}

// rewrites yields what each habit of servers makes of a path whose harmless
// escapes are decoded; where it changes nothing, the path itself.
func rewrites(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(decodeEscapes(s, anyByte)) || // most servers; a second time behind another server
			!yield(decodeOldEscapes(s)) || // IIS, old decoders of UTF-8
			!yield(removeControls(s)) || // URL parsers as browsers have them, Python
			!yield(strings.ReplaceAll(s, `\`, "/")) || // the same URL parsers, Windows
			!yield(stripParameters(s)) || // Tomcat, Jetty
			!yield(trimSegments(s)) || // Windows
			!yieldWithoutHost(s, yield) { // URL parsers, as of node, PHP and Python
			return
		}
		for _, end := range []string{"?", "#", "\x00"} { // URL parsers behind a decoder; C
			if path, _, found := strings.Cut(s, end); found && !yield(rooted(path)) {
				return
			}
		}
		for i := 0; i < len(s); i++ { // PHP, CGI, ASP: a script, and the path that it is given
			if slash := scriptEnd(s, i); slash > 0 {
				if i = slash; !yield(s[:i]) || !yield(s[i:]) {
					return
				}
			}
		}
		if !yield(mergeSlashes(s)) { // nginx, Apache; before or after dot segments are resolved
			return
		}
		path, _ := removeDotSegments(s)
		yield(path)
	}
}

// yieldWithoutHost yields what follows a scheme and a host.
func yieldWithoutHost(s string, yield func(string) bool) bool {
	if s == "" || s == "*" {
		return true
	}
	slashes := len(s) - len(strings.TrimLeft(s, `/\`))
	switch {
	case slashes == 0:
		return yield(s[schemeEnd(s):]) && yield("/"+s)
	case slashes == 1:
		return true
	}
	for _, ends := range []string{`/\?#`, "/?#"} {
		path := ""
		if i := strings.IndexAny(s[slashes:], ends); i >= 0 {
			path = s[slashes+i:]
		}
		if !yield(rooted(path)) {
			return false
		}
	}
	return true
}

// rooted returns a path that begins with a slash.
func rooted(path string) string {
	if path == "" || path[0] != '/' && path[0] != '\\' {
		return "/" + path
	}
	return path
}

// schemeEnd returns the length of the scheme that s begins with and its colon,
// 0 without one.
func schemeEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c|0x20 >= 'a' && c|0x20 <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '.' || c == '-'):
		case i > 0 && c == ':':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

// scripts are the endings of files that servers run, and give the rest of the
// path to.
var scripts = func() map[string]bool {
	set := map[string]bool{}
	for _, ending := range strings.Fields(
		"php php3 php4 php5 php7 php8 phtml phar cgi fcgi pl py rb lua exe dll asp aspx ashx asmx cfm cfc jsp jspx") {
		set[ending] = true
	}
	return set
}()

// scriptEnd returns the place of the slash after a script's name whose ending
// begins with the dot at i; 0 when that is something else.
func scriptEnd(s string, i int) int {
	const longest = len(".phtml/")
	if s[i] != '.' {
		return 0
	}
	n := strings.IndexByte(s[i:min(i+longest, len(s))], '/')
	if n > 0 && scripts[lower(s[i+1:i+n])] {
		return i + n
	}
	return 0
}

// foldEscapes decodes the escapes that mean the same to every server: not
// those of delimiters, of "%" and of control characters.
func foldEscapes(s string) string {
	return decodeEscapes(s, func(c byte) bool { return c > 0x1F && c != 0x7F && strings.IndexByte(`/\?#;%`, c) < 0 })
}

func anyByte(byte) bool { return true }

// decodeEscapes decodes once the percent escapes of the bytes that wanted
// holds for; invalid ones stay.
func decodeEscapes(s string, wanted func(byte) bool) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && ishex(s[i+1]) && ishex(s[i+2]) {
			if c := unhex(s[i+1])<<4 | unhex(s[i+2]); wanted(c) {
				b = append(b, c)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// decodeOldEscapes decodes ASCII characters in overlong UTF-8 (RFC 3629 §3)
// and in escapes such as "%u002f".
func decodeOldEscapes(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		c, n := overlong(s[i:])
		if n == 0 && i+5 < len(s) && s[i] == '%' && s[i+1]|0x20 == 'u' && s[i+2:i+4] == "00" &&
			ishex(s[i+4]) && ishex(s[i+5]) {
			c, n = unhex(s[i+4])<<4|unhex(s[i+5]), 6
		}
		switch {
		case n > 0 && b == nil:
			b = append(make([]byte, 0, len(s)), s[:i]...)
			fallthrough
		case n > 0:
			b = append(b, c)
			i += n - 1
		case b != nil:
			b = append(b, s[i])
		}
	}
	if b == nil {
		return s
	}
	return string(b)
}

// overlong returns the ASCII character that the first n bytes of s are, when
// they are two to four; else n is 0.
func overlong(s string) (c byte, n int) {
	switch s[0] {
	case 0xC0, 0xC1:
		c, n = s[0]&1, 2
	case 0xE0:
		n = 3
	case 0xF0:
		n = 4
	}
	if n > len(s) {
		return 0, 0
	}
	value := int(c)
	for i := 1; i < n; i++ {
		if s[i]&0xC0 != 0x80 {
			return 0, 0
		}
		value = value<<6 | int(s[i]&0x3F)
	}
	if value > 0x7F {
		return 0, 0
	}
	return byte(value), n
}

// removeControls removes tabs and line ends, and control characters and spaces
// at the end (URL Standard §4.4).
func removeControls(s string) string {
	if strings.ContainsAny(s, "\t\r\n") {
		s = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(s)
	}
	for s != "" && s[len(s)-1] <= ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// stripParameters removes what stands behind ";" in each segment (RFC 3986
// §3.3).
func stripParameters(s string) string {
	i := strings.IndexByte(s, ';')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	inside := true
	for ; i < len(s); i++ {
		if s[i] == ';' || s[i] == '/' {
			inside = s[i] == ';'
		}
		if !inside {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// trimSegments removes what Windows passes over: spaces and dots at the end of
// a name, and the name of a stream, as in "::$DATA".
func trimSegments(s string) string {
	if !strings.Contains(s, "::$") && !strings.Contains(s, "./") && !strings.Contains(s, " /") &&
		!strings.HasSuffix(s, ".") && !strings.HasSuffix(s, " ") {
		return s
	}
	segments := strings.Split(s, "/")
	for i, name := range segments {
		name, _, _ = strings.Cut(name, "::$")
		for strings.HasSuffix(name, " ") || strings.HasSuffix(name, ".") && name != "." && name != ".." {
			name = name[:len(name)-1]
		}
		if name != "" {
			segments[i] = name
		}
	}
	return strings.Join(segments, "/")
}

// trimSlash removes the slash at the end of a path.
func trimSlash(path string) string {
	if n := len(path) - 1; n > 0 && path[n] == '/' {
		return path[:n]
	}
	return path
}

// mergeSlashes makes one slash of each run of them.
func mergeSlashes(s string) string {
	i := strings.Index(s, "//")
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] != '/' || len(b) == 0 || b[len(b)-1] != '/' {
			b = append(b, s[i])
		}
	}
	return string(b)
}
