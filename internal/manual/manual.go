// Package manual makes man pages and completions of shells from the commands of the program. Start with
// [Pages] and [Completion].
package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"fairshare/internal/prose"
)

// A command is a subcommand, and what follows its name.
type command struct {
	name, help, detail string
	group              string // "" means the first one
	flags              []flag
	args               []argument
}

// A flag is one of a command. value is "" for a flag without a value.
type flag struct {
	name        string
	short       string // one letter; "" for none
	help, value string
	choices     []string // all values that are possible; nil means any
	env         []string
}

// An argument follows the flags.
type argument struct {
	name, help         string
	choices            []string
	required, repeated bool
}

// isFile reports whether the value is the name of a file or folder.
func isFile(value string) bool {
	value = strings.ToLower(value)
	return strings.HasPrefix(value, "file") || value == "dir" || strings.HasSuffix(value, "log")
}

// commandsOf returns the commands of a program, in the order of its help.
func commandsOf(app *kong.Application) (all []command) {
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		c := command{name: node.Name, help: node.Help, detail: node.Detail}
		if node.Group != nil {
			c.group = node.Group.Title
		}
		for _, f := range slices.Concat(node.Flags, app.Flags) {
			if f.Hidden {
				continue
			}
			made := flag{name: f.Name, help: f.Help, choices: valuesOf(f.Enum), env: f.Envs}
			if f.Short != 0 {
				made.short = string(f.Short)
			}
			if !f.IsBool() {
				made.value = strings.Trim(f.FormatPlaceHolder(), `"`)
			}
			c.flags = append(c.flags, made)
		}
		for _, p := range node.Positional {
			c.args = append(c.args, argument{name: p.Name, help: p.Help, choices: valuesOf(p.Enum),
				required: p.Required, repeated: p.IsCumulative()})
		}
		all = append(all, c)
	}
	return all
}

// valuesOf returns the values of an enumeration.
func valuesOf(enum string) (all []string) {
	for word := range strings.SplitSeq(enum, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// A Page is a man page.
type Page struct {
	Name string // such as fairshare-ban.1
	Text []byte // with the macros man(7)
}

// Pages returns a page for the program and one for each command. day is the date of the pages: 2026-11-25.
func Pages(app *kong.Application, version, day string) []Page {
	all := commandsOf(app)
	pages := []Page{overview(app, all, version, day)}
	for i := range all {
		pages = append(pages, all[i].page(app.Name, version, day))
	}
	return pages
}

// A roff collects the text of a page.
type roff struct{ strings.Builder }

// escaper makes text that roff prints as it is.
var escaper = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "…", "...")

// line writes text that begins a line.
func (r *roff) line(text string) {
	text = escaper.Replace(strings.Join(strings.Fields(text), " "))
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	r.WriteString(text + "\n")
}

func (r *roff) macro(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// title writes the head of a page.
func (r *roff) title(name, version, day, about string) {
	r.macro(`.TH "%s" 1 "%s" "%s" "fairshare"`, escaper.Replace(strings.ToUpper(name)), day, escaper.Replace(version))
	r.macro(".SH NAME")
	r.line(name + " - " + strings.TrimSuffix(strings.ToLower(about[:1])+about[1:], "."))
}

func overview(app *kong.Application, all []command, version, day string) Page {
	var r roff
	r.title(app.Name, version, day, app.Help)
	r.macro(".SH SYNOPSIS\n.B %s\n.I command\n[\\fIargument\\fR ...]", escaper.Replace(app.Name))
	r.macro(".SH DESCRIPTION")
	r.line(app.Help + " Each command has a page of its own.")
	group := "-"
	for i := range all {
		if c := &all[i]; c.group != group {
			group = c.group
			if group == "" {
				r.macro(".SH COMMANDS")
			} else {
				r.macro(".SS \"%s\"", escaper.Replace(strings.TrimSuffix(group, ":")))
			}
		}
		r.macro(".TP\n.BR %s\\-%s (1)", escaper.Replace(app.Name), escaper.Replace(all[i].name))
		r.line(all[i].help)
	}
	r.macro(".SH EXIT STATUS\n.TP\n.B 0")
	r.line("The command has done what it should.")
	r.macro(".TP\n.B 1")
	r.line("Errors were found, or the command failed.")
	r.macro(".TP\n.B 2")
	r.line("The command line is wrong.")
	return Page{app.Name + ".1", []byte(r.String())}
}

func (c *command) page(program, version, day string) Page {
	var r roff
	r.title(program+"-"+c.name, version, day, c.help)
	r.macro(".SH SYNOPSIS\n.B %s %s\n[\\fIflag\\fR ...]", escaper.Replace(program), escaper.Replace(c.name))
	for _, a := range c.args {
		text := "\\fI" + escaper.Replace(a.name) + "\\fR"
		if a.repeated {
			text += " ..."
		}
		if !a.required {
			text = "[" + text + "]"
		}
		r.macro("%s", text)
	}
	r.macro(".SH DESCRIPTION")
	r.line(c.help)
	if c.detail != "" {
		r.macro(".PP")
		r.line(c.detail)
	}
	if len(c.args) > 0 {
		r.macro(".SH ARGUMENTS")
		for _, a := range c.args {
			r.macro(".TP\n.I %s", escaper.Replace(a.name))
			r.line(a.help + oneOf(a.choices))
		}
	}
	r.macro(".SH FLAGS")
	for _, f := range c.flags {
		text := `\fB\-\-` + escaper.Replace(f.name) + `\fR`
		if f.short != "" {
			text = `\fB\-` + f.short + `\fR, ` + text
		}
		if f.value != "" {
			text += ` \fI` + escaper.Replace(f.value) + `\fR`
		}
		r.macro(".TP\n%s", text)
		help := f.help
		if len(f.env) > 0 {
			help += " The environment may set it: " + strings.Join(f.env, ", ") + "."
		}
		r.line(help)
	}
	r.macro(".SH SEE ALSO\n.BR %s (1)", escaper.Replace(program))
	return Page{program + "-" + c.name + ".1", []byte(r.String())}
}

func oneOf(choices []string) string {
	if choices == nil {
		return ""
	}
	return " One of " + prose.List(choices, "and") + "."
}
