package httpguard

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// A formKind says how a body holds fields.
type formKind uint8

const (
	noForm      formKind = iota // servers see no fields
	unclearForm                 // some servers may see fields
	urlencodedForm
	multipartForm
)

var (
	charsetOf  = `(?:;[ \t]*charset="?(?:utf-8|us-ascii|iso-8859-1|windows-1252)"?[ \t]*)?`
	urlencoded = regexp.MustCompile(`(?i)^application/x-www-form-urlencoded[ \t]*` + charsetOf + `$`)
	multiparts = regexp.MustCompile(`^(?i:multipart/form-data)[ \t]*(?i:` + charsetOf + `);[ \t]*(?i:boundary)=` +
		`(?:([0-9A-Za-z'()+_./:=?-]{1,70})|"([0-9A-Za-z'()+_./:=?-]{1,70})")[ \t]*(?i:` + charsetOf + `)$`)
)

// kindOfForm returns the kind of a request's body by its header, and the boundary of
// multipartForm. Only what all servers read in the same way is a form; what some may take
// for one is unclear.
func kindOfForm(method string, header http.Header) (kind formKind, boundary string) {
	types := header["Content-Type"]
	text := strings.ToLower(strings.Join(types, ","))
	switch {
	case strings.Trim(text, " \t,") == "":
		if method == http.MethodPost { // Ruby's servers take such a body for a form
			return unclearForm, ""
		}
		return noForm, ""
	case !strings.Contains(text, "form-urlencoded") && !strings.Contains(text, "multipart"):
		return noForm, ""
	case len(types) > 1:
		return unclearForm, ""
	}
	codings := strings.Join(header["Content-Encoding"], ",")
	if codings != "" && !strings.EqualFold(codings, "identity") {
		return unclearForm, "" // servers may decompress it
	}
	value := strings.Trim(types[0], " \t")
	if urlencoded.MatchString(value) {
		return urlencodedForm, ""
	}
	if found := multiparts.FindStringSubmatch(value); found != nil {
		return multipartForm, found[1] + found[2]
	}
	return unclearForm, ""
}

// formFields returns the fields of a whole body in the encoding of
// application/x-www-form-urlencoded. ok is false if servers may read the body in several ways.
func formFields(kind formKind, boundary string, body []byte) (encoded string, ok bool) {
	switch kind {
	case noForm:
		return "", true
	case urlencodedForm:
		return string(body), isPlainEncoded(body)
	case multipartForm:
		return multipartFields(boundary, body)
	}
	return "", false
}

// isPlainEncoded reports whether a body is urlencoded as browsers and libraries do it: without
// control characters, marks of another encoding, and broken escapes.
func isPlainEncoded(body []byte) bool {
	for i, c := range body {
		if c < ' ' || c == 0x7F || c == '%' && (i+2 >= len(body) || !isHex(body[i+1]) || !isHex(body[i+2])) {
			return false
		}
	}
	return len(body) == 0 || body[0] < 0xEF // a byte order mark begins with EF, FE or FF
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// multipartFields returns the fields of a multipart body. It is stricter than RFC 7578: a
// boundary stands only where a part ends, lines end with CR LF, and nothing is before the
// first part and behind the last.
func multipartFields(boundary string, body []byte) (encoded string, ok bool) {
	sections := bytes.Split(body, []byte("--"+boundary))
	last := len(sections) - 1
	if last < 1 || len(sections[0]) > 0 || string(bytes.TrimSuffix(sections[last], []byte("\r\n"))) != "--" {
		return "", false
	}
	var all []byte
	for _, section := range sections[1:last] {
		section, begins := bytes.CutPrefix(section, []byte("\r\n"))
		section, ends := bytes.CutSuffix(section, []byte("\r\n"))
		header, content, parts := bytes.Cut(section, []byte("\r\n\r\n"))
		name, field, ok := partName(string(header), len(content) == 0)
		if !begins || !ends || !parts || !ok {
			return "", false
		}
		if !field {
			continue
		}
		all = append(append(all, escapeField(name)...), '=')
		all = append(append(all, escapeField(string(content))...), '&')
	}
	return string(bytes.TrimSuffix(all, []byte("&"))), true
}

// escapeField escapes a text. A space is not "+": rules would look at that, too.
func escapeField(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// partHeader is one line of a part's header.
var partHeader = regexp.MustCompile(`^([0-9A-Za-z!#$%&'*+.^_|~-]+):[ \t]*([\t -\x7E\x80-\xFF]*?)[ \t]*$`)

// disposition is the value of Content-Disposition as browsers and libraries write it.
var disposition = regexp.MustCompile(`^(?i:form-data); ?(?i:name)=(?:"([^"\\]+)"|([0-9A-Za-z_.\[\]-]+))` +
	`(?:; ?(?i:filename)=(?:"((?:[^"\\]|\\[^"\\])*)"|([0-9A-Za-z_.-]+))(?:; ?(?i:filename)\*=[0-9A-Za-z_.'%!#$&+^|~-]+)?)?$`)

// partType is a Content-Type of a part that does not change how its text is read.
var partType = regexp.MustCompile(`(?i)^[a-z0-9.+*-]+/[a-z0-9.+*-]+[ \t]*` + charsetOf + `$`)

// partName reads the header of a part. field is false for a file. ok is false if servers may
// read it in several ways.
func partName(header string, empty bool) (name string, field, ok bool) {
	seen := map[string]string{}
	for line := range strings.SplitSeq(header, "\r\n") {
		found := partHeader.FindStringSubmatch(line)
		if found == nil {
			return "", false, false
		}
		key := strings.ToLower(found[1])
		if _, twice := seen[key]; twice {
			return "", false, false
		}
		seen[key] = found[2]
	}
	coding := strings.ToLower(seen["content-transfer-encoding"])
	found := disposition.FindStringSubmatchIndex(seen["content-disposition"])
	if found == nil || coding != "" && coding != "binary" && coding != "8bit" && coding != "7bit" {
		return "", false, false
	}
	text := func(group int) (string, bool) {
		if from := found[2*group]; from >= 0 {
			return seen["content-disposition"][from:found[2*group+1]], true
		}
		return "", false
	}
	quoted, _ := text(1)
	plain, _ := text(2)
	quotedFile, isQuoted := text(3)
	_, isFile := text(4)
	if isFile || quotedFile != "" {
		return "", false, true
	}
	kind, typed := seen["content-type"]
	switch {
	case isQuoted && !empty: // Go takes it for a field, PHP for a file
		return "", false, false
	case typed && (!partType.MatchString(kind) || strings.HasPrefix(strings.ToLower(kind), "multipart/")):
		return "", false, false
	}
	return quoted + plain, true, true
}
