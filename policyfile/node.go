package policyfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file, so that no file takes long to read.
const (
	maxSize    = 4 << 20 // bytes; the YAML library needs some 100 times as much memory while it reads
	maxDepth   = 64      // levels of nested lists and maps
	maxKeys    = 10_000  // of a map
	maxMarks   = 4096    // anchors, aliases and tags
	maxAliased = 1 << 18 // nodes in the values of all aliases
)

// A node is one value of the file with its position. Aliases share the node of
// their anchor.
type node struct {
	kind    nodeKind
	text    string // of a scalar
	quoted  bool   // the scalar is a text, even if it looks like a number or a bool
	line    int    // from 1
	column  int    // from 1, in characters
	items   []*node
	entries []entry
	size    int  // number of nodes, with this one and those below
	missing bool // an alias without an anchor
}

// An entry is a key of a map with its value. A key that occurs twice has two
// entries.
type entry struct {
	key    *node
	value  *node
	merged bool // from "<<"
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mapNode
)

// String returns the kind with its article, for messages.
func (k nodeKind) String() string {
	switch k {
	case scalarNode:
		return "a single value"
	case listNode:
		return "a list"
	case mapNode:
		return "a map"
	}
	return "nothing"
}

// parseTree reads YAML. root is nil if the file has no value.
func (r *reader) parseTree(text string) (root *node, fault *syntaxFault) {
	defer func() {
		if recover() != nil { // a bug of the YAML library
			root, fault = nil, &syntaxFault{line: 1, column: 1, last: true, message: "this is not YAML"}
		}
	}()
	tokens := tokenize(text)
	if fault := checkTokens(tokens); fault != nil {
		return nil, fault
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, newSyntaxFault(err)
	}
	var docs []*ast.DocumentNode
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			docs = append(docs, d)
		}
	}
	if len(docs) == 0 {
		return nil, nil
	}
	b := &builder{r: r, anchors: map[string]*node{}}
	if len(docs) > 1 {
		at := docs[1].Body.GetToken().Position
		if docs[1].Start != nil {
			at = docs[1].Start.Position
		}
		r.faultAt(max(at.Line, 1), max(at.Column, 1), "", "a second document begins: a policy file has only one")
		r.broken = true
	}
	root = b.node(docs[0].Body)
	if b.aliased > maxAliased {
		return nil, &syntaxFault{line: 1, column: 1, last: true,
			message: fmt.Sprintf("aliases stand for more than %d values", maxAliased)}
	}
	return root, nil
}

// A block is a run of lines with one indentation.
type block struct {
	column int
	keys   int // lines that do not begin an item of a list
}

// checkTokens rejects files for which the YAML library would take long or recurse
// deeply.
func checkTokens(tokens token.Tokens) *syntaxFault {
	var flow, marks, inline, line int
	var blocks []block
	for _, t := range tokens {
		at := t.Position
		if at.Line != line {
			line, inline = at.Line, 0
			if flow == 0 {
				for len(blocks) > 0 && blocks[len(blocks)-1].column > at.Column {
					blocks = blocks[:len(blocks)-1]
				}
				if len(blocks) == 0 || blocks[len(blocks)-1].column < at.Column {
					blocks = append(blocks, block{column: at.Column})
				}
				if t.Type != token.SequenceEntryType {
					blocks[len(blocks)-1].keys++
				}
			}
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(flow-1, 0)
		case token.SequenceEntryType, token.MappingKeyType:
			inline++
		case token.AnchorType, token.AliasType, token.TagType:
			marks++
		}
		if flow+inline+len(blocks) > maxDepth {
			return &syntaxFault{line: at.Line, column: max(at.Column, 1), last: true,
				message: fmt.Sprintf("nested deeper than %d", maxDepth)}
		}
		if len(blocks) > 0 && blocks[len(blocks)-1].keys > maxKeys {
			return &syntaxFault{line: at.Line, column: max(at.Column, 1), last: true,
				message: fmt.Sprintf("more than %d keys in a map", maxKeys)}
		}
		if marks > maxMarks {
			return &syntaxFault{line: at.Line, column: max(at.Column, 1), last: true,
				message: fmt.Sprintf("more than %d anchors, aliases and tags", maxMarks)}
		}
	}
	return nil
}

// A builder converts the nodes of the YAML library.
type builder struct {
	r       *reader
	anchors map[string]*node
	aliased int
}

func (b *builder) node(n ast.Node) *node {
	at := n.GetToken().Position
	out := &node{line: max(at.Line, 1), column: max(at.Column, 1), size: 1}
	switch n := n.(type) {
	case *ast.MappingNode:
		b.mapping(out, n.Values)
	case *ast.MappingValueNode:
		b.mapping(out, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = listNode
		for _, v := range n.Values {
			item := b.node(v)
			out.items = append(out.items, item)
			out.size += item.size
		}
	case *ast.StringNode:
		out.kind, out.text = scalarNode, n.Value
		out.quoted = n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		out.kind, out.text, out.quoted = scalarNode, n.Value.Value, true
	case *ast.NullNode:
	case *ast.AnchorNode:
		out = b.node(n.Value)
		b.anchors[n.Name.GetToken().Value] = out
	case *ast.AliasNode:
		return b.alias(n, out)
	case *ast.TagNode:
		b.tag(n, out)
	case ast.ScalarNode: // numbers, true, false, .inf: the text as written
		out.kind, out.text = scalarNode, n.GetToken().Value
	default:
		b.r.faultAt(out.line, out.column, "", "a value is needed here")
	}
	return out
}

func (b *builder) tag(n *ast.TagNode, out *node) {
	if n.Start.Value != "!!str" || n.Value == nil {
		b.r.faultAt(out.line, out.column, "", "the tag %s has no meaning here", n.Start.Value)
		return
	}
	*out = *b.node(n.Value)
	if out.kind == scalarNode {
		out.quoted = true
	}
}

// alias returns the node of the anchor. Its faults are reported at the position of
// the anchor.
func (b *builder) alias(n *ast.AliasNode, out *node) *node {
	name := n.Value.GetToken().Value
	target, ok := b.anchors[name]
	if !ok {
		b.r.faultAt(out.line, out.column, fmt.Sprintf("a text that begins with * needs quotes: %q", "*"+name),
			"*%s is a YAML alias, and there is no anchor &%s", name, name)
		out.kind, out.text, out.quoted, out.missing = scalarNode, "*"+name, true, true
		return out
	}
	if b.aliased += target.size; b.aliased > maxAliased {
		return out
	}
	return target
}

func (b *builder) mapping(out *node, values []*ast.MappingValueNode) {
	out.kind = mapNode
	var merged []entry
	for i, v := range values {
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merged = append(merged, b.merge(v.Value)...)
			continue
		}
		var key *node
		if k, ok := v.Key.(*ast.MappingKeyNode); ok {
			key = b.node(k.Value)
		} else {
			key = b.node(v.Key)
		}
		if i == 0 {
			out.line, out.column = key.line, key.column
		}
		value := b.node(v.Value)
		if value.kind == nullNode { // an empty value has no position of its own
			value.line, value.column = key.line, key.column
		}
		out.size += 1 + value.size
		if key.kind != scalarNode {
			b.r.faultAt(key.line, key.column, "", "a key is a single word, not %s", key.kind)
			continue
		}
		out.entries = append(out.entries, entry{key: key, value: value})
	}
	if len(merged) == 0 {
		return
	}
	own := map[string]bool{}
	for _, e := range out.entries {
		own[e.key.text] = true
	}
	for _, e := range merged {
		if !own[e.key.text] {
			own[e.key.text] = true
			out.entries = append(out.entries, e)
			out.size += 1 + e.value.size
		}
	}
}

// merge returns the entries of the maps that "<<" names.
func (b *builder) merge(v ast.Node) []entry {
	from := b.node(v)
	maps := []*node{from}
	if from.kind == listNode {
		maps = from.items
	}
	var entries []entry
	for _, m := range maps {
		if m.missing {
			continue
		}
		if m.kind != mapNode {
			b.r.faultAt(m.line, m.column, "", "<< takes a map, not %s", m.kind)
			continue
		}
		for _, e := range m.entries {
			e.merged = true
			entries = append(entries, e)
		}
	}
	return entries
}
