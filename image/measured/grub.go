package measured

import (
	"regexp"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/stick"
)

// word is one of a command line, as grub.cfg has it for a slot.
type word struct {
	text     string // $esp and $slot stand for what differs between sticks
	pattern  *regexp.Regexp
	optional bool
}

// key is what a word sets, whatever the value is.
func key(word string) string {
	key, _, _ := strings.Cut(word, "=")
	return key
}

// Lines of grub.cfg that make the command line.
var (
	linuxLine = regexp.MustCompile(`(?m)^\s*(?:if )?linux \$boot/` + stick.KernelName + ` (.*)$`)
	trialLine = regexp.MustCompile(`(?m)^\s*set trial="(.*)"$`)
)

// parseLine reads the words of the kernel's command line out of grub.cfg, as they are for a slot. Without such a line
// there are none.
func parseLine(grub string, c stick.SlotConfig) []word {
	line, trial := "", ""
	if found := linuxLine.FindStringSubmatch(grub); found != nil {
		line = found[1]
	}
	if found := trialLine.FindStringSubmatch(grub); found != nil {
		trial = found[1]
	}

	line = strings.NewReplacer("$trial", trial, "$version", c.Version, "$verity", c.RootHash).Replace(line)
	varying := strings.NewReplacer(`\$esp`, `[0-9a-f-]{36}`, `\$slot`, `[ab]`)
	var words []word
	for text := range strings.FieldsSeq(line) {
		words = append(words, word{
			text:     text,
			pattern:  regexp.MustCompile("^" + varying.Replace(regexp.QuoteMeta(text)) + "$"),
			optional: slices.Contains(strings.Fields(trial), text),
		})
	}
	return words
}

// variable of GRUB, as it stands in its configuration.
var grubVariable = regexp.MustCompile(`\\\$(\w+|\\\{\w+\\\})`)

// parseCommands gives a pattern for each command of a configuration of GRUB. A variable may have any value: what a
// command does with it is measured, too.
func parseCommands(config string) (all []*regexp.Regexp) {
	for text := range strings.Lines(config) {
		words := strings.Fields(strings.ReplaceAll(text, `"`, ""))
		if len(words) > 0 && slices.Contains([]string{"if", "elif", "while"}, words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}

		pattern := "^"
		for _, word := range words {
			quoted := regexp.QuoteMeta(word)
			if grubVariable.ReplaceAllString(quoted, "") == "" {
				pattern += `(?:\S+ )*`
			} else {
				pattern += grubVariable.ReplaceAllString(quoted, `\S*`) + " "
			}
		}
		all = append(all, regexp.MustCompile(pattern+"$"))
	}
	return all
}

// isCommand reports whether a command that GRUB ran is one of its configuration.
func isCommand(text string, all []*regexp.Regexp) bool {
	text = strings.Join(strings.Fields(text), " ") + " "
	return slices.ContainsFunc(all, func(re *regexp.Regexp) bool { return re.MatchString(text) })
}
