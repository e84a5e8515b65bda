package fairshare

import "strings"

// A Kind says what a request is for.
type Kind uint8

const (
	KindUnknown Kind = iota // GET or HEAD of a path that may be a page or not
	KindPage                // GET or HEAD of a document that somebody opens
	KindAsset               // GET or HEAD of a part of a page: style, script, image, font, media, frame
	KindFetch               // GET or HEAD of data by a script, and websockets
	KindAction              // any other method
)

// String returns the kind as a word.
func (k Kind) String() string {
	switch k {
	case KindPage:
		return "page"
	case KindAsset:
		return "asset"
	case KindFetch:
		return "fetch"
	case KindAction:
		return "action"
	}
	return "unknown"
}

// Kind returns what the request is for. Sec-Fetch-Dest (W3C Fetch Metadata) comes first, then the
// extension of the path, then other headers. The client makes up all of them: a Kind may order
// requests, but by itself it must not ease a limit for a client.
func (r *Request) Kind() Kind {
	if r.Method != "GET" && r.Method != "HEAD" {
		return KindAction
	}
	switch dest := r.first("Sec-Fetch-Dest"); dest {
	case "":
	case "document":
		return KindPage
	case "empty", "websocket":
		return KindFetch
	default:
		return KindAsset
	}
	if kind := KindOfPath(r.Path); kind != KindUnknown {
		return kind
	}
	if r.Header == nil {
		return KindUnknown
	}
	switch r.first("Sec-Fetch-Mode") {
	case "navigate": // a frame has it too
		return KindPage
	case "cors", "same-origin", "websocket":
		return KindFetch
	case "no-cors":
		return KindAsset
	}
	switch accept := r.first("Accept"); {
	case strings.Contains(accept, "text/html"):
		return KindPage
	case strings.HasPrefix(accept, "image/"), strings.HasPrefix(accept, "text/css"):
		return KindAsset
	}
	if r.first("X-Requested-With") == "XMLHttpRequest" { // Android web views send the name of the app
		return KindFetch
	}
	return KindUnknown
}

// first returns the first value of a header, whose name is in canonical form; "" without one.
func (r *Request) first(name string) string {
	if r.Header != nil {
		if values := r.Header.Values(name); len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// KindOfPath returns the kind that the extension of a path says: a page, an asset, a fetch, or KindUnknown.
func KindOfPath(path string) Kind {
	const longest = len("webmanifest")
	for i := len(path) - 1; i >= 0 && len(path)-i <= longest+1; i-- {
		switch path[i] {
		case '/':
			return KindUnknown
		case '.':
			return kindOfExtension(path[i+1:])
		}
	}
	return KindUnknown
}

func kindOfExtension(ext string) Kind {
	var space [len("webmanifest")]byte
	switch string(appendLower(space[:0], ext)) {
	case "css", "js", "mjs", "map", "wasm", "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "bmp", "woff",
		"woff2", "ttf", "otf", "eot", "mp3", "mp4", "m4a", "m4s", "ogg", "webm", "ts", "vtt", "webmanifest":
		return KindAsset
	case "json":
		return KindFetch
	case "html", "htm", "xhtml":
		return KindPage
	}
	return KindUnknown
}
