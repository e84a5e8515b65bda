package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// vagueNames are names of identifiers that do not say what they name.
var vagueNames = func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
		tell tells told telling say says said saying who whom whoever whose what
		keep keeps kept left back onward onwards word words place places again anew
		beside dear steered ahead ask asks asked knock knocks helper helpers util utils misc`) {
		names[name] = true
	}
	return names
}()

// longLiteral is the width of a string above which its line may be too long.
const longLiteral = 60

// goBlocks returns the comments and the strings of a Go file. It reports lines
// that are too long, and vague names of functions, methods, named types, their
// fields, and package-level variables and constants.
func goBlocks(name string, text []byte, report func(line int, rule rule, detail, text string)) ([]block, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	lineOf := func(pos token.Pos) int { return files.Position(pos).Line }

	var blocks []block
	for _, group := range file.Comments {
		blocks = append(blocks, commentBlocks(group, lineOf)...)
	}

	literalLines := map[int]bool{} // lines with a long literal
	identifier := func(id *ast.Ident) {
		if id != nil && vagueNames[strings.ToLower(id.Name)] {
			report(lineOf(id.Pos()), ruleIdentifier, "say what it names", id.Name)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.FuncDecl:
			identifier(node.Name)
		case *ast.TypeSpec:
			identifier(node.Name)
			for _, field := range fieldsOf(node.Type) {
				for _, id := range field.Names {
					identifier(id)
				}
			}
		case *ast.BasicLit:
			if node.Kind != token.STRING {
				return true
			}
			for line := lineOf(node.Pos()); line <= lineOf(node.End()); line++ {
				if len(node.Value) > longLiteral || lineOf(node.End()) > lineOf(node.Pos()) {
					literalLines[line] = true
				}
			}
			if value, err := strconv.Unquote(node.Value); err == nil && strings.Contains(value, " ") {
				blocks = append(blocks, literalBlock(value, lineOf(node.Pos()), node.Value[0] == '`'))
			}
		}
		return true
	})
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, id := range values.Names {
					identifier(id)
				}
			}
		}
	}

	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if width := columns(line); width > maxCode && !literalLines[number] && !longWord(line) {
			report(number, ruleLine, fmt.Sprintf("%d columns", width), strings.TrimSpace(line))
		}
	}
	return blocks, nil
}

// fieldsOf returns the fields of a struct or the methods of an interface.
func fieldsOf(named ast.Expr) []*ast.Field {
	switch named := named.(type) {
	case *ast.StructType:
		return named.Fields.List
	case *ast.InterfaceType:
		return named.Methods.List
	}
	return nil
}

// longWord reports whether a comment cannot be wrapped, such as an address.
func longWord(line string) bool {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
	return ok && !strings.Contains(strings.TrimSpace(comment), " ")
}

// literalBlock makes the lines of a string to blocks of text.
func literalBlock(value string, line int, raw bool) block {
	made := block{kind: literal}
	for one := range strings.Lines(value) {
		made.lines = append(made.lines, textLine{line, one})
		if raw {
			line++
		}
	}
	return made
}

// commentBlocks returns the paragraphs and list items of a comment. Indented
// code, directives and commented outputs of examples are left out.
func commentBlocks(group *ast.CommentGroup, lineOf func(token.Pos) int) []block {
	var blocks []block
	var open block
	flush := func() {
		if len(open.lines) > 0 {
			blocks = append(blocks, open)
		}
		open = block{}
	}
	last := 0
	for _, comment := range group.List {
		number := lineOf(comment.Pos())
		text, lineComment := strings.CutPrefix(comment.Text, "//")
		if !lineComment {
			text = strings.TrimSuffix(strings.TrimPrefix(comment.Text, "/*"), "*/")
		} else if text != "" && text[0] != ' ' && text[0] != '\t' {
			continue // a directive
		}
		if number > last+1 {
			flush() // a comment behind code is not the rest of the one before
		}
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			trimmed := strings.TrimSpace(line)
			indented := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "  ") || strings.HasPrefix(line, " \t")
			item := listItem.FindString(line)
			switch {
			case strings.HasPrefix(trimmed, "Output:") || strings.HasPrefix(trimmed, "Unordered output:"):
				flush()
				return blocks
			case trimmed == "":
				flush()
			case item != "":
				flush()
				open.lines = []textLine{{number, line[len(item):]}}
			case indented && lineComment && len(open.lines) == 0:
				// code
			case strings.HasPrefix(trimmed, "# "):
				flush()
				blocks = append(blocks, block{heading, []textLine{{number, trimmed[2:]}}})
			default:
				open.lines = append(open.lines, textLine{number, trimmed})
			}
			last = number
			number++
		}
	}
	flush()
	return blocks
}
