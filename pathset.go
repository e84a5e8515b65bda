package fairshare

import "strings"

// A pathSet is the compiled patterns of a path. Most of them are whole paths,
// name an extension, "*.css", or how a path ends, "*/login.php": these are
// found at once, however many there are.
type pathSet struct {
	texts      []string // the patterns, as they were written
	fold       bool     // patterns and paths are compared in lower case
	exact      map[string]bool
	extensions map[string]bool     // the text after the last dot
	ends       map[string][]string // the text after the last slash → ends with at least that slash
	rest       []pattern
}

func newPathSet(texts []string, fold bool) (*pathSet, error) {
	set := &pathSet{texts: texts, fold: fold, exact: map[string]bool{}, extensions: map[string]bool{},
		ends: map[string][]string{}}
	for _, s := range texts {
		if expr, found := strings.CutPrefix(s, regexpMark); fold && found {
			s = regexpMark + "(?i)" + expr
		} else if fold {
			s = strings.ToLower(s)
		}
		switch extension, found := strings.CutPrefix(s, "*."); {
		case strings.HasPrefix(s, regexpMark):
		case found && !strings.ContainsAny(extension, "*."):
			set.extensions[extension] = true
			continue
		case !strings.Contains(s, "*"):
			set.exact[s] = true
			continue
		case strings.LastIndexByte(s, '*') == 0 && strings.Contains(s, "/"):
			name := s[strings.LastIndexByte(s, '/')+1:]
			set.ends[name] = append(set.ends[name], s[1:])
			continue
		}
		p, err := newPattern(s, glob)
		if err != nil {
			return nil, err
		}
		set.rest = append(set.rest, p)
	}
	return set, nil
}

func (set *pathSet) match(d *decision, path string) bool {
	if set.fold {
		path = d.foldPath(path)
	}
	if len(set.extensions) > 0 {
		if dot := lastDot(path); dot >= 0 && set.extensions[path[dot+1:]] {
			return true
		}
	}
	if len(set.ends) > 0 {
		for _, end := range set.ends[path[strings.LastIndexByte(path, '/')+1:]] {
			if strings.HasSuffix(path, end) {
				return true
			}
		}
	}
	return len(set.exact) > 0 && set.exact[path] || matchAny(set.rest, path, "")
}

// lastDot returns the place of the last dot of a path, −1 if it has none. Most paths have none, and
// are searched many bytes at a time.
func lastDot(path string) int {
	if strings.IndexByte(path, '.') < 0 {
		return -1
	}
	return strings.LastIndexByte(path, '.')
}

// foldPath returns a path in lower case. The text is good until the next call
// of it or of fold.
func (d *decision) foldPath(path string) string {
	if ascii(path) {
		return d.fold(path)
	}
	return strings.ToLower(path)
}
