package logins

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"path"
	"strings"

	"fairshare"
)

// A client may name the page to which the site redirects it: after a success, and in some applications after a
// failure, too (Symfony's _failure_path). So a redirect to such a page proves a success only if other clients have
// failed who named a page in the same field, and were not redirected there.

// MaxBody is the most bytes of a request's body that are looked at.
const MaxBody = 8 << 10

const (
	fieldClients = 2  // clients that must have failed before a field is known to name the page after a success
	maxFields    = 64 // of a request that are looked at; in a request with more, every redirect is unproven
)

// Redirects of one form in a day that prove nothing and do not count as failures; for each class.
var unproven = [classes]struct{ most, daily float64 }{{1e9, 1e9}, {1e9, 1e9}, {1e9, 1e9}, {2000, 10_000}, {30, 60}}

// A field is one that names a page to be redirected to.
type field struct {
	Name    uint32               // keyed hash; 0: none
	Clients [fieldClients]uint32 // keyed hashes of clients that failed and were not redirected to the page; 0: none
}

func (f *field) isProven() bool { return f.Clients[fieldClients-1] != 0 }

// add notes a client that failed and was not redirected to the page.
func (f *field) add(client uint32) {
	for i := range f.Clients {
		if f.Clients[i] == 0 {
			f.Clients[i] = client
		}
		if f.Clients[i] == client {
			return
		}
	}
}

// count returns the number of these clients.
func (f *field) count() (n int) {
	for n < fieldClients && f.Clients[n] != 0 {
		n++
	}
	return n
}

// A fieldReader calls found for each field that a client sent. It returns false if there may be more.
type fieldReader func(found func(name, value string)) bool

// fieldsOf returns the fields of an attempt: of its query, its cookies and its body.
func (a *Attempt) fieldsOf(answer *Answer) fieldReader {
	return func(found func(name, value string)) bool {
		n := 0
		each := func(text, separators string) bool {
			for text != "" {
				i := strings.IndexAny(text, separators)
				pair := text
				if i >= 0 {
					pair, text = text[:i], text[i+1:]
				} else {
					text = ""
				}
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if n++; n > maxFields {
					return false
				}
				if name != "" && value != "" {
					found(unescape(name), unescape(value))
				}
			}
			return true
		}
		return each(a.query, "&;") && each(a.cookies, ";") && !answer.BodyCut &&
			(!answer.isForm() || each(answer.Body, "&"))
	}
}

// overridesMethod reports whether an attempt asks the application to take it for a request with another method, such as
// DELETE, which logs out. It may do so in a part of the body that is not known.
func (a *Attempt) overridesMethod(answer *Answer) bool {
	overrides := a.overrides
	whole := a.fieldsOf(answer)(func(name, value string) {
		overrides = overrides || strings.EqualFold(name, "_method") && !strings.EqualFold(value, "POST")
	})
	return overrides || !whole || !answer.isForm() && containsFold(answer.Body, "_method")
}

// sendsOtherMethod reports whether a header of a request overrides its method.
func sendsOtherMethod(h fairshare.Header) bool {
	for _, name := range [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if values := h.Values(name); len(values) > 0 && !strings.EqualFold(values[0], "POST") {
			return true
		}
	}
	return false
}

func (answer *Answer) isForm() bool {
	kind, _, _ := strings.Cut(answer.BodyType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded")
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// pageOf returns the canonical path of a page that a value names, or nil. Values without a slash and a dot name none.
func pageOf(value string) []byte {
	if len(value) > 1024 {
		return nil
	}
	value = strings.ReplaceAll(strings.TrimSpace(unescape(value)), `\`, "/")
	if !strings.ContainsAny(value, "/.") {
		return nil
	}
	if rest, ok := strings.CutPrefix(value, "//"); ok {
		value = "http://" + rest
	}
	p := pathOf(value)
	if p == "" {
		return nil
	}
	return canonical(nil, path.Clean(p))
}

// namesPage reports whether a value names the target of a redirect, as it is or in Base64. An application may add
// something before the path.
func namesPage(value string, target []byte) bool {
	if isPage(pageOf(value), target) {
		return true
	}
	text := strings.TrimRight(value, "=")
	if len(text) < 2 || len(text) > 1024 {
		return false
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if plain, err := e.DecodeString(text); err == nil {
			return isPage(pageOf(string(plain)), target)
		}
	}
	return false
}

func isPage(page, target []byte) bool {
	switch {
	case len(page) == 0:
		return false
	case len(page) == 1: // of the folder: a longer target does not end with it
		return bytes.Equal(page, target)
	case page[0] == '/':
		return bytes.HasSuffix(target, page)
	}
	return bytes.HasSuffix(target, append([]byte{'/'}, page...))
}

// plainPage returns the path of a page of this host that a value names in a way that no application has a reason to
// ignore; "" if it does not.
func plainPage(value, host string) string {
	if value != "" && value[0] != '/' && !strings.Contains(value, "://") {
		plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
		if err != nil {
			return ""
		}
		value = string(plain)
	}
	if _, rest, found := strings.Cut(value, "://"); found && value[0] != '/' {
		i := strings.IndexByte(rest, '/')
		if i < 0 || plainHost(rest[:i]) != host {
			return ""
		}
		value = rest[i:]
	}
	value, _, _ = strings.Cut(value, "?")
	value, _, _ = strings.Cut(value, "#")
	if value == "" || value[0] != '/' || len(value) > 128 || strings.Contains(value, "//") ||
		strings.Contains(value, "..") {
		return ""
	}
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '/', c == '-', c == '_', c == '.':
		default:
			return ""
		}
	}
	return value
}

// namesFailure reports whether the name of a field says that it names the page after a failure.
func namesFailure(name string) bool {
	for _, word := range []string{"fail", "error", "denied", "cancel"} {
		if containsFold(name, word) {
			return true
		}
	}
	return false
}

// A proof says what a redirect to a page proves.
type proof uint8

const (
	proven   proof = iota
	doubtful       // the client may have named the page
	refuted        // the client named the page for a failure
)

// proofOf tells what a redirect proves. target is the canonical path to which it leads.
func (w *Watcher) proofOf(a *Attempt, answer *Answer, target []byte) proof {
	p := proven
	whole := a.fieldsOf(answer)(func(name, value string) {
		isNamed := namesPage(value, target)
		switch {
		case namesFailure(name) && isNamed:
			p = refuted
		case p == refuted:
		case namesFailure(name), isNamed && !a.form.knowsField(w.fieldHash(name)):
			p = doubtful // a failure may be redirected to a page by its name in the application
		}
	})
	if !whole && p == proven || p == proven && answer.Body != "" && !answer.isForm() && mentions(answer.Body, target) {
		return doubtful
	}
	return p
}

// mentions reports whether a body that is not a form may name a page.
func mentions(body string, target []byte) bool {
	body = strings.ReplaceAll(body, `\/`, "/")
	if strings.Contains(body, `\u`) || containsFold(body, "fail") {
		return true
	}
	if len(target) < 2 {
		return strings.Contains(body, `"/"`) || strings.Contains(body, "\n/\r") || strings.Contains(body, "://")
	}
	return containsFold(body, string(target))
}

func (w *Watcher) fieldHash(name string) uint32 {
	return uint32(max(w.hashString(name[:min(len(name), maxPath)])>>32, 1))
}

func (f *form) knowsField(hash uint32) bool {
	for i := range f.fields {
		if f.fields[i].Name == hash {
			return f.fields[i].isProven()
		}
	}
	return false
}

// learnFields learns from an attempt that failed which fields do not name the page after a failure.
func (w *Watcher) learnFields(a *Attempt, answer *Answer) {
	if !answer.Live {
		return
	}
	f, client := a.form, uint32(max(a.client.hash>>32, 1))
	seen := map[uint32]int{}
	a.fieldsOf(answer)(func(name, _ string) { seen[w.fieldHash(name)]++ })
	var own, to [maxPath]byte
	from := canonical(own[:0], a.path)
	target := canonical(to[:0], targetOf(a, answer.Location))
	a.fieldsOf(answer)(func(name, value string) {
		hash := w.fieldHash(name)
		value = plainPage(value, a.host)
		if value == "" || seen[hash] != 1 || namesFailure(name) {
			return
		}
		page := pageOf(value)
		if isPage(page, from) || isPage(page, target) || isLoginPath(page) {
			return // it may have named the form
		}
		least := &f.fields[0]
		for i := range f.fields {
			l := &f.fields[i]
			if l.Name == hash {
				l.add(client)
				return
			}
			if l.count() < least.count() {
				least = l
			}
		}
		if !least.isProven() {
			*least = field{Name: hash}
			least.add(client)
		}
	})
}

// targetOf returns the path to which an answer redirects.
func targetOf(a *Attempt, location string) string {
	if location == "" {
		return ""
	}
	to := unescape(pathOf(strings.ReplaceAll(location, `\`, "/")))
	if to == "" || to[0] != '/' && !strings.Contains(location, "://") {
		if to == "" {
			return a.path
		}
		to = path.Join(path.Dir(a.path), to)
	}
	return path.Clean(to)
}
