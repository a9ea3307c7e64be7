package icn

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const maxSize = 1 << 20 // bytes of an input; ICN's own have a few hundred

// variable is one assignment of the shell file.
type variable struct {
	name, value string
	line        int
	isUsed      bool // by another one
}

// readShell lists the assignments of a shell file in order, a later one replacing an
// earlier one of the same name. Everything else in the file becomes a note.
func (im *importer) readShell(f *File) ([]variable, error) {
	if len(f.Data) > maxSize {
		return nil, fmt.Errorf(
			"read %s: it has %d bytes, a user_config.sh has at most %d", f.Name, len(f.Data), maxSize,
		)
	}

	parsed, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(f.Data), "")
	if err != nil {
		var p syntax.ParseError
		if errors.As(err, &p) {
			return nil, fmt.Errorf(
				"read %s:%d: not a shell file: %s; correct the line", f.Name, p.Pos.Line(), oneLine(p.Text),
			)
		}
		return nil, fmt.Errorf("read %s: not a shell file: %s", f.Name, oneLine(err.Error()))
	}

	sh := &shell{importer: im, file: f.Name, known: maps.Clone(im.environment)}
	for _, stmt := range parsed.Stmts {
		sh.statement(stmt)
	}

	return sh.variables, nil
}

type shell struct {
	*importer
	file      string
	known     map[string]string
	variables []variable
}

func (sh *shell) statement(stmt *syntax.Stmt) {
	line := int(stmt.Pos().Line())
	plain := !stmt.Background && !stmt.Negated && len(stmt.Redirs) == 0
	switch c := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		if plain && len(c.Args) == 0 {
			sh.assign(c.Assigns)
			return
		}

		word := ""
		if len(c.Args) > 0 {
			word = c.Args[0].Lit()
		}

		if word == "set" || word == ":" && len(c.Args) == 1 {
			return // shell options say nothing about the rack
		}

		if word == "" {
			word = "a command"
		}

		sh.addNote(
			sh.file, line, truncate(word),
			"commands are not executed, only assignments are read; write down as NAME=VALUE what it sets",
		)
	case *syntax.DeclClause:
		if v := c.Variant.Value; plain && (v == "export" || v == "readonly" || v == "declare") {
			sh.assign(c.Args)
			return
		}
		sh.addNote(sh.file, line, c.Variant.Value, "not read; write NAME=VALUE")
	default:
		sh.addNote(
			sh.file, line, kindOf(stmt.Cmd),
			"not executed, only assignments are read; write down as NAME=VALUE what it sets",
		)
	}
}

func kindOf(c syntax.Command) string {
	switch c.(type) {
	case *syntax.IfClause:
		return "if"
	case *syntax.FuncDecl:
		return "function"
	case *syntax.ForClause, *syntax.WhileClause:
		return "loop"
	case *syntax.BinaryCmd:
		return "pipe or list of commands"
	}
	return "a construct of the shell"
}

func (sh *shell) assign(assigns []*syntax.Assign) {
	for _, a := range assigns {
		if a.Name == nil || a.Naked {
			continue // export NAME, declare -x
		}

		line, name := int(a.Pos().Line()), a.Name.Value
		if a.Array != nil || a.Index != nil || a.Append {
			sh.addNote(sh.file, line, truncate(name), "arrays and += are not read; write NAME=VALUE")
			continue
		}

		value, why := "", ""
		if a.Value != nil {
			value, why = sh.wordText(a.Value.Parts)
		}

		if why != "" {
			sh.addNote(sh.file, line, truncate(name), "%s; write its value down", why)
			continue
		}

		sh.known[name] = value
		for i, v := range sh.variables {
			if v.name == name {
				sh.variables = append(sh.variables[:i], sh.variables[i+1:]...)
				break
			}
		}

		sh.variables = append(sh.variables, variable{name: name, value: value, line: line})
	}
}

// wordText is the text of a word, or why it cannot be known without running a shell.
func (sh *shell) wordText(parts []syntax.WordPart) (text, why string) {
	var b strings.Builder
	for _, part := range parts {
		s, why := sh.partText(part)
		if why != "" {
			return "", why
		}

		b.WriteString(s)
		if b.Len() > maxSize {
			return "", "its value grows without end"
		}
	}
	return b.String(), ""
}

func (sh *shell) partText(part syntax.WordPart) (text, why string) {
	switch p := part.(type) {
	case *syntax.Lit:
		return unescape(p.Value), ""
	case *syntax.SglQuoted:
		if p.Dollar {
			return "", "it is quoted as $'…'"
		}
		return p.Value, ""
	case *syntax.DblQuoted:
		return sh.wordText(p.Parts)
	case *syntax.ParamExp:
		return sh.expandParameter(p)
	case *syntax.CmdSubst:
		return "", "its value is the output of a command, and nothing is executed here"
	}
	return "", "its value is computed by a shell, and nothing is executed here"
}

// expandParameter expands $NAME, ${NAME}, ${NAME:-word} and ${NAME:=word} by what the file set before.
func (sh *shell) expandParameter(p *syntax.ParamExp) (text, why string) {
	if p.Param == nil || p.Excl || p.Length || p.Width || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Names != 0 {
		return "", "its value is computed by a shell, and nothing is executed here"
	}

	value, ok := sh.known[p.Param.Value]
	for i, v := range sh.variables {
		if v.name == p.Param.Value {
			sh.variables[i].isUsed = true
		}
	}

	if p.Exp == nil {
		if !ok {
			return "", "it uses " + truncate(p.Param.Value) + ", which this file does not set"
		}
		return value, ""
	}

	switch p.Exp.Op {
	case syntax.DefaultUnset, syntax.AssignUnset:
	case syntax.DefaultUnsetOrNull, syntax.AssignUnsetOrNull:
		ok = ok && value != ""
	default:
		return "", "its value is computed by a shell, and nothing is executed here"
	}

	if ok || p.Exp.Word == nil {
		return value, ""
	}

	return sh.wordText(p.Exp.Word.Parts)
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// truncate shows a word of the input in a message.
func truncate(s string) string {
	if r := []rune(s); len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return oneLine(s)
}
