package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion returns the script that completes the command line of a program in a shell.
func Completion(app *kong.Application, shell string) []byte {
	all := commandsOf(app)
	switch shell {
	case "bash":
		return bash(app.Name, all)
	case "zsh":
		return zsh(app.Name, all)
	}
	return fish(app.Name, all)
}

// names returns the names of all commands.
func names(all []command) (list []string) {
	for i := range all {
		list = append(list, all[i].name)
	}
	return list
}

// argWords returns the words that an argument can be, and whether it can be a file.
func (c *command) argWords(all []command) (words []string, file bool) {
	for _, a := range c.args {
		words = append(words, a.choices...)
		file = file || isFile(a.name)
		if a.name == "command" {
			words = append(words, names(all)...)
		}
	}
	return words, file
}

// spellings returns a flag as it is written, the long form first.
func (f *flag) spellings() []string {
	if f.short == "" {
		return []string{"--" + f.name}
	}
	return []string{"--" + f.name, "-" + f.short}
}

func bash(program string, all []command) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion of %[1]s, made by: %[1]s completion bash
_%[1]s_files() {
    compopt -o default 2>/dev/null && return
    local IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$1"))
}

_%[1]s() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= files= i
    if [[ $cur == = ]]; then # --flag=
        cur=
    elif [[ $prev == = ]]; then # --flag=value
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} != -* ]]; then
            command=${COMP_WORDS[i]}
            break
        fi
    done
    COMPREPLY=()
    case $command in
    '')
        words='%[2]s --help --version'
        ;;
`, program, strings.Join(names(all), " "))
	for i := range all {
		c := &all[i]
		words, file := c.argWords(all)
		var flags []string
		fmt.Fprintf(&b, "    %s)\n        case $prev in\n", c.name)
		var files, free []string
		for k := range c.flags {
			f := &c.flags[k]
			flags = append(flags, "--"+f.name)
			switch {
			case f.value == "":
			case f.choices != nil:
				fmt.Fprintf(&b, "        %s)\n            COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n            return\n"+
					"            ;;\n", strings.Join(f.spellings(), "|"), strings.Join(f.choices, " "))
			case isFile(f.value):
				files = append(files, f.spellings()...)
			default:
				free = append(free, f.spellings()...)
			}
		}
		if files != nil {
			fmt.Fprintf(&b, "        %s)\n            _%s_files \"$cur\"\n            return\n            ;;\n",
				strings.Join(files, "|"), program)
		}
		if free != nil {
			fmt.Fprintf(&b, "        %s)\n            return\n            ;;\n", strings.Join(free, "|"))
		}
		fmt.Fprintf(&b, "        esac\n        if [[ $cur == -* ]]; then\n            words='%s'\n        else\n"+
			"            words='%s'\n", strings.Join(flags, " "), strings.Join(words, " "))
		if file {
			b.WriteString("            files=yes\n")
		}
		b.WriteString("        fi\n        ;;\n")
	}
	fmt.Fprintf(&b, `    esac
    if [[ -n $files ]]; then
        _%[1]s_files "$cur"
        return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -F _%[1]s %[1]s
`, program)
	return []byte(b.String())
}

// quoted returns a text in single quotes, as shells read it.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// about returns a help text without its end, for a list.
func about(help string) string {
	help, _, _ = strings.Cut(help, "; ")
	return strings.TrimSuffix(help, ".")
}

func zsh(program string, all []command) []byte {
	escape := strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# zsh completion of %[1]s, made by: %[1]s completion zsh\n\n_%[1]s() {\n"+
		"    local -a commands\n    commands=(\n", program)
	for i := range all {
		fmt.Fprintf(&b, "        %s\n", quoted(all[i].name+":"+escape(about(all[i].help))))
	}
	b.WriteString(`    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
`)
	for i := range all {
		c := &all[i]
		fmt.Fprintf(&b, "    %s)\n        _arguments -s", c.name)
		for k := range c.flags {
			f := &c.flags[k]
			value := ""
			switch {
			case f.value == "":
			case f.choices != nil:
				value = ":" + escape(f.value) + ":(" + strings.Join(f.choices, " ") + ")"
			case isFile(f.value):
				value = ":" + escape(f.value) + ":_files"
			default:
				value = ":" + escape(f.value) + ":"
			}
			for _, spelling := range f.spellings() {
				fmt.Fprintf(&b, " \\\n            %s",
					quoted("("+strings.Join(f.spellings(), " ")+")"+spelling+"["+escape(about(f.help))+"]"+value))
			}
		}
		if words, file := c.argWords(all); file {
			fmt.Fprintf(&b, " \\\n            '*:file:_files'")
		} else if words != nil {
			fmt.Fprintf(&b, " \\\n            %s", quoted("*:word:("+strings.Join(words, " ")+")"))
		}
		b.WriteString("\n        ;;\n")
	}
	fmt.Fprintf(&b, "    esac\n}\n\nif [[ $funcstack[1] == _%[1]s ]]; then\n    _%[1]s \"$@\"\nelse\n    compdef _%[1]s %[1]s\nfi\n",
		program)
	return []byte(b.String())
}

func fish(program string, all []command) []byte {
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion of %[1]s, made by: %[1]s completion fish\ncomplete -c %[1]s -f\n", program)
	for i := range all {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -a %s -d %s\n", program, all[i].name,
			quote(about(all[i].help)))
	}
	for i := range all {
		c := &all[i]
		begin := fmt.Sprintf("complete -c %s -n '__fish_seen_subcommand_from %s'", program, c.name)
		for k := range c.flags {
			f := &c.flags[k]
			line := begin + " -l " + f.name
			if f.short != "" {
				line += " -s " + f.short
			}
			switch {
			case f.value == "":
			case f.choices != nil:
				line += " -x -a " + quote(strings.Join(f.choices, " "))
			case isFile(f.value):
				line += " -r -F"
			default:
				line += " -x"
			}
			b.WriteString(line + " -d " + quote(about(f.help)) + "\n")
		}
		words, file := c.argWords(all)
		if file {
			b.WriteString(begin + " -F\n")
		} else if words = slices.Compact(words); words != nil {
			b.WriteString(begin + " -a " + quote(strings.Join(words, " ")) + "\n")
		}
	}
	return []byte(b.String())
}
