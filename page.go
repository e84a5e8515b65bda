package fairshare

import (
	"bytes"
	"hash/maphash"
)

// A Page tells which requests are likely to cost the same. It holds hashes of
// the path and of its folder, in which a segment with a digit in it stands for
// all such segments. 0 means not known.
type Page struct{ Path, Folder uint64 }

// of returns the page of the same path at a site; −1 means that there are no sites.
func (p Page) of(site int) Page {
	if site >= 0 && p != (Page{}) {
		const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio: changes about half of the bits
		p.Path, p.Folder = p.Path^uint64(site+1)*odd, p.Folder^uint64(site+1)*odd
	}
	return p
}

// pageSeed keeps clients from finding paths with equal hashes.
var pageSeed = maphash.MakeSeed()

// longestPage is how much of a path is looked at.
const longestPage = 256

// pageOf returns the page of a path. Case and final slashes do not matter.
func pageOf(path string) Page {
	if path == "" {
		return Page{}
	}
	var space [longestPage + 1]byte
	b, segment := space[:0], 0 // where the last segment begins in b
	numbered := false
	for i := 0; i < len(path) && len(b) < longestPage; i++ {
		c := path[i]
		switch {
		case c == '/':
			b, segment, numbered = append(b, c), len(b)+1, false
		case numbered:
		case c >= '0' && c <= '9':
			b, numbered = append(b[:segment], '0'), true
		case c >= 'A' && c <= 'Z':
			b = append(b, c|0x20)
		default:
			b = append(b, c)
		}
	}
	if len(b) == segment && segment > 1 { // a final slash
		b = b[:segment-1]
		segment = bytes.LastIndexByte(b, '/') + 1
	}
	folder := maphash.Bytes(pageSeed, b[:segment])
	return Page{Path: maphash.Bytes(pageSeed, append(b, 0)), Folder: folder} // "/" is in itself
}
