package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Paths are counted exactly for the first bounds.paths different ones. Beyond that the rarest
// one is replaced, see ranking. Its figures go to a tree of patterns, so that none is lost there.

// A PathUsage has the figures of one path or of a pattern of paths.
type PathUsage struct {
	Path string `json:"path"` // without the query; "*" stands for any text
	Usage
	Refused int64 `json:"refused"` // or blocked
	Errors  int64 `json:"errors"`  // answers 4xx and 5xx
	// some requests may be missing: there were too many paths to count them all exactly
	Approximate bool `json:"approximate,omitempty"`
}

const (
	mostPath     = 256 // bytes of a path that are kept
	mostSegments = 8   // of a path that the tree of patterns distinguishes
	mostNodes    = 1 << 16
	mostPaths    = 100 // in a report
	// lightShare is the share of the requests, bytes and time below which neighbouring paths
	// become one pattern.
	lightShare = 0.02
)

// A pathCount has the figures of one path.
type pathCount struct {
	text            string
	bytes, time     int64
	refused, errors uint32
}

// path counts a line under its path.
func (rec *recorder) path(it *item, u usage, refused bool) {
	p, fresh := rec.paths.count(it.path)
	if fresh {
		text := it.req.Path
		p.facts.text = strings.Clone(text[:min(len(text), mostPath)])
	}
	p.facts.bytes, p.facts.time = addBytes(p.facts.bytes, u.bytes), addBytes(p.facts.time, u.time)
	if refused {
		p.facts.refused++
	}
	if s := status(it.entry); s >= 400 && s < 600 {
		p.facts.errors++
	}
}

// pathTotalOf returns the figures of a path since it was last new.
func pathTotalOf(p *ranked[pathCount]) pathTotal {
	return pathTotal{usage{int64(p.count - p.over), p.facts.bytes, p.facts.time},
		int64(p.facts.refused), int64(p.facts.errors)}
}

type pathTotal struct {
	usage
	refused, errors int64
}

func (t *pathTotal) add(u pathTotal) {
	t.usage.add(u.usage)
	t.refused += u.refused
	t.errors += u.errors
}

// A pathTree learns patterns of paths: its nodes are the parts between slashes.
type pathTree struct {
	root  pathNode
	nodes int
	all   usage
}

type pathNode struct {
	own      pathTotal // of paths that end here
	children map[string]*pathNode
}

// add counts a path.
func (t *pathTree) add(path string, total pathTotal) {
	t.all.add(total.usage)
	n := &t.root
	for range mostSegments {
		slash := strings.IndexByte(path, '/') + 1
		if slash == 0 || slash == len(path) {
			break
		}
		n = t.child(n, path[:slash])
		path = path[slash:]
	}
	if strings.IndexByte(path, '/')+1 < len(path) && strings.Contains(path, "/") {
		path = "*" // too deep
	}
	t.child(n, path).own.add(total)
	if t.nodes > mostNodes {
		t.prune(&t.root)
	}
}

func (t *pathTree) child(n *pathNode, name string) *pathNode {
	c := n.children[name]
	if c == nil {
		if n.children == nil {
			n.children = map[string]*pathNode{}
		}
		c = &pathNode{}
		n.children[name] = c
		t.nodes++
	}
	return c
}

// prune joins light neighbours to patterns, and returns the total of n.
func (t *pathTree) prune(n *pathNode) pathTotal {
	total := n.own
	groups := map[string][]string{} // pattern → names of children
	for name, c := range n.children {
		sum := t.sum(c)
		total.add(sum)
		if pattern := patternOf(name, c); sum.most(t.all) < lightShare || name == pattern {
			groups[pattern] = append(groups[pattern], name)
		}
	}
	for pattern, names := range groups {
		if len(names) == 1 {
			continue
		}
		star := &pathNode{}
		for _, name := range names {
			t.merge(star, n.children[name])
			delete(n.children, name)
			t.nodes--
		}
		n.children[pattern] = star
		t.nodes++
	}
	for _, c := range n.children {
		t.prune(c)
	}
	return total
}

// patternOf returns the pattern that a light child becomes a part of.
func patternOf(name string, c *pathNode) string {
	if strings.HasSuffix(name, "/") {
		return "*/"
	}
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 && len(name)-dot <= 6 && len(name)-dot > 1 &&
		strings.Trim(name[dot+1:], "0123456789abcdefghijklmnopqrstuvwxyz") == "" {
		return "*" + name[dot:]
	}
	return "*"
}

func (t *pathTree) sum(n *pathNode) pathTotal {
	total := n.own
	for _, c := range n.children {
		total.add(t.sum(c))
	}
	return total
}

// merge adds from to to.
func (t *pathTree) merge(to, from *pathNode) {
	to.own.add(from.own)
	for name, c := range from.children {
		if same := to.children[name]; same != nil {
			t.merge(same, c)
			t.nodes--
			continue
		}
		if to.children == nil {
			to.children = map[string]*pathNode{}
		}
		to.children[name] = c
	}
}

// report returns the patterns, each with the figures of its paths.
func (t *pathTree) report() []PathUsage {
	t.prune(&t.root)
	found := map[string]*pathTotal{}
	var walk func(n *pathNode, path string)
	walk = func(n *pathNode, path string) {
		if n.own.requests > 0 {
			text := path
			for strings.HasSuffix(text, "*/*") || strings.HasSuffix(text, "*/") && len(text) > 2 {
				text = strings.TrimSuffix(strings.TrimSuffix(text, "/*"), "/")
			}
			if found[text] == nil {
				found[text] = &pathTotal{}
			}
			found[text].add(n.own)
		}
		for name, c := range n.children {
			walk(c, path+name)
		}
	}
	walk(&t.root, "")
	rows := make([]PathUsage, 0, len(found))
	for _, path := range slices.Sorted(maps.Keys(found)) {
		rows = append(rows, found[path].row(path))
	}
	return rows
}

func (t *pathTotal) row(path string) PathUsage {
	return PathUsage{Path: strings.ToValidUTF8(path, "\uFFFD"), Usage: t.usage.report(), Refused: t.refused,
		Errors: t.errors}
}

// addPaths adds the paths and patterns with the largest shares of the requests, bytes or time.
func (rec *recorder) addPaths(r *Report) {
	r.Paths, r.PathPatterns = []PathUsage{}, []PathUsage{}
	for i := range rec.paths.n {
		p := rec.paths.at(i)
		total := pathTotalOf(p)
		rec.tree.add(p.facts.text, total)
		row := total.row(p.facts.text)
		row.Approximate = p.over > 0
		r.Paths = append(r.Paths, row)
	}
	r.PathPatterns = append(r.PathPatterns, rec.tree.report()...)
	sort := func(rows []PathUsage) []PathUsage {
		slices.SortFunc(rows, func(a, b PathUsage) int {
			return cmp.Or(a.Usage.compare(b.Usage, r.Total), strings.Compare(a.Path, b.Path))
		})
		return slices.Clip(rows[:min(len(rows), mostPaths)])
	}
	r.Paths, r.PathPatterns = sort(r.Paths), sort(r.PathPatterns)
}
