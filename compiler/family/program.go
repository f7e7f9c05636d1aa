package family

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
)

// Program returns the program in a chat model's answer:
//
//  1. The answer is cut into blocks: the texts in Markdown fences or, without fences, the texts between lines that cannot
//     be Python.
//  2. In another language than Python, the longest block is the program, of those without assertions if there are such.
//     There, a block without a language counts if no block has the task's.
//  3. The blocks that declare what the starter code declares are the program or, if it declares nothing, the blocks that
//     declare what the prompt calls, with the blocks that they need; see chosen.
//  4. A program that lacks the last function or class of the starter code is completed; see placed.
func (e CodeCompletionEval) Program(answer string) string {
	answer = Said(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(answer))
	answer = margins.ReplaceAllStringFunc(answer, func(s string) string { return space.ReplaceAllString(unseen.ReplaceAllString(s, ""), " ") })
	blocks := e.blocks(answer, true, true)
	switch {
	case len(blocks) == 0:
		return answer
	case !compiler.IsPython(e.Language):
		if code := slices.DeleteFunc(slices.Clone(blocks), asserts.MatchString); len(code) > 0 {
			return longest(code)
		}
		return longest(blocks)
	}
	starter := cmp.Or(e.StarterCode, e.Prompt)
	declared := matched(declaration, starter)
	if len(declared) == 0 {
		return chosen(blocks, matched(call, e.Prompt))
	}
	return placed(chosen(blocks, declared), starter, declared[len(declared)-1])
}

var (
	// thought matches the text up to the end of a model's thoughts, stop what ends its turn in the template of a chat, and
	// margins white space at the ends of lines.
	thought = regexp.MustCompile(`(?is)^.*(?:</(?:think|thinking|thoughts?|reasoning)>|\[/think\]|◁/think▷|<\|channel\|>final<\|message\|>|assistantfinal)`)
	stop    = regexp.MustCompile(`(?:\s*(?:<[|｜][\w▁]+[|｜]>|</s>|<end_of_turn>))+\s*$`)
	margins = regexp.MustCompile(`(?m)^[\t\p{Zs}\p{Cf}]+|[\t\p{Zs}\p{Cf}]+$`)
	space   = regexp.MustCompile(`\p{Zs}`)
	unseen  = regexp.MustCompile(`\p{Cf}`)
	// fence matches a line that opens or closes a block: its margin, perhaps of an item of a list, the mark, a language, and more.
	// Words and a colon may stand before a block that it opens.
	fence = regexp.MustCompile("^(?:[\\p{L} ]+:[ \t]+)?([ \t>]*(?:(?:[-*+]|\\d+[.)])[ \t]+)?)(```+|~~~+)[ \t]*\\{?\\.?([\\w.+#-]*)([^`]*)$")
	item  = regexp.MustCompile(`[^ \t>]`)

	declaration = regexp.MustCompile(`(?m)^(?:(?:async[ \t]+)?def|class)[ \t]+([A-Za-z_]\w*)`)
	assignment  = regexp.MustCompile(`(?m)^([A-Za-z_]\w*)[ \t]*(?::[^=\n]*)?=[^=]`)
	constant    = regexp.MustCompile(`(?m)^([A-Z_][A-Z_\d]*)[ \t]*(?::[^=\n]*)?=[^=]`)
	imported    = regexp.MustCompile(`(?m)^(?:from[ \t]+\S+[ \t]+)?import[ \t]+(\([^)]*\)|.*)$`)
	method      = regexp.MustCompile(`(?m)^([ \t]+)(?:async[ \t]+)?def[ \t]+([A-Za-z_]\w*)`)
	outermost   = regexp.MustCompile(`^(?:[ \t]*\n)*([ \t]+)(?:async[ \t]|def[ \t]|class[ \t]|import[ \t]|from[ \t]|@)`)
	call        = regexp.MustCompile(`\b([A-Za-z_]\w*)\(`)
	margin      = regexp.MustCompile(`(?m)^(.)`)
	asserts     = regexp.MustCompile(`(?i)\b(?:assert|expect\(|testing\b|test::)`)
	result      = regexp.MustCompile(`(?m)^[ \t]*(?:return|yield)\b`)
	quotes      = regexp.MustCompile(`#|"""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)
	tabs        = regexp.MustCompile(`(?m)^\t+`)
	word        = regexp.MustCompile(`[\p{L}\p{N}_]+`)
)

// Said returns what a chat model said, without its thoughts before that and without the mark that ends its turn.
func Said(answer string) string {
	return stop.ReplaceAllString(answer[len(thought.FindString(answer)):], "")
}

// matched returns the texts that the first group of an expression matches.
func matched(re *regexp.Regexp, text string) (found []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// blocks returns the blocks of a text in the task's language or, if there are none, the blocks in other languages. If
// nested is set, a block of Markdown stands for the blocks in it. If literals is set, a string of several lines has no
// fences. A fence that is not closed closes the code before it.
func (e CodeCompletionEval) blocks(text string, nested, literals bool) []string {
	var own, foreign, loose, lines []string
	end := func(to *[]string) {
		if block := dedented(strings.Join(lines, "")); strings.TrimSpace(block) != "" {
			*to = append(*to, block)
		}
		lines = nil
	}
	python, quote := compiler.IsPython(e.Language), ""
	var open []string // the match of the fence that is open
	closed := func() {
		language := open[3][strings.LastIndex(open[3], ".")+1:] // which may be a name of a file
		block := strings.Join(lines, "")
		switch markdown := slices.Contains([]string{"", "md", "markdown"}, language); {
		case nested && markdown && slices.ContainsFunc(strings.Split(block, "\n"), fence.MatchString):
			own, lines = append(own, e.blocks(block, false, true)...), nil
		case python && language == "" || cmp.Or(compiler.Extension(language), language) == compiler.Extension(e.Language):
			end(&own)
		default:
			end(&foreign)
		}
		open = nil
	}
	for line := range strings.Lines(text) {
		m := fence.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case open != nil && m != nil && m[3]+m[4] == "" && strings.HasPrefix(line, m[1]+open[2]) && len(m[1]) <= len(open[1]):
			closed()
		case open != nil:
			lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, open[1]), strings.TrimRight(open[1], " \t")))
		case m != nil && quote == "":
			end(&loose)
			open, m[1] = m, item.ReplaceAllString(m[1], " ")
		case python && quote == "" && prose(strings.TrimSuffix(line, "\n")):
			end(&loose)
		default:
			if lines = append(lines, line); literals {
				quote = quoted(line, quote)
			}
		}
	}
	if quote != "" { // which was none
		return e.blocks(text, nested, false)
	}
	closing := open != nil && open[3] == "" && len(own)+len(foreign) == 0
	if open != nil {
		closed()
	}
	end(&loose)
	code := func(block string) bool { return declaration.MatchString(block) || result.MatchString(block) }
	switch {
	case len(own)+len(foreign) == 0, len(loose) > 0 && closing, slices.ContainsFunc(loose, code) && !slices.ContainsFunc(own, code):
		return loose
	case len(own) == 0:
		return foreign
	}
	return own
}

// dedented returns a block without the margin of its first line, if this line is one that begins a program.
func dedented(block string) string {
	if m := outermost.FindStringSubmatch(block); m != nil {
		return strings.ReplaceAll("\n"+block, "\n"+m[1], "\n")[1:]
	}
	return block
}

// quoted returns the quotes of a text of several lines that is open after a line, if quote is open before it.
func quoted(line, quote string) string {
	for {
		if quote != "" {
			_, rest, found := strings.Cut(line, quote)
			if !found {
				return quote
			}
			line, quote = rest, ""
		}
		m := quotes.FindStringIndex(line)
		if m == nil || line[m[0]] == '#' {
			return ""
		}
		if q := line[m[0]:m[1]]; q == `"""` || q == "'''" {
			quote = q
		}
		line = line[m[1]:]
	}
}

// noStatement matches how no statement of Python begins: a sign, a mark such as [DONE], an item of a list, words and a full stop, or an apostrophe.
var noStatement = regexp.MustCompile("^(?:[<>|!?$%`•–—]|\\[/?[A-Z]+\\]$|\\*\\*|[-*+] |\\d+[.)] |[\\p{L} ]+[.!?:。！？：]$|\\p{L}*[^\\P{L}rRbBuUfF]\\p{L}*['’]\\p{L})")

var keywords = strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global " +
	"if import in is lambda nonlocal not or pass raise return try while with yield match case type print exec")

// prose reports whether a line at the margin cannot be Python, where two words, or a bracket and a word, do not stand
// beside each other unless one is a keyword. The name of the language alone is prose, too.
func prose(line string) bool {
	keyword := func(w string) bool { return slices.Contains(keywords, w) }
	if line == "" || strings.ContainsAny(line[:1], " \t") {
		return false
	}
	if compiler.IsPython(line) || noStatement.MatchString(line) && !keyword(word.FindString(line)) {
		return true
	}
	if i := strings.IndexAny(line, "#\"'`"); i >= 0 {
		line = line[:i]
	}
	places := word.FindAllStringIndex(line, -1)
	for i, at := range places[min(1, len(places)):] {
		before := places[i]
		between := line[before[1]:at[0]]
		beside := strings.TrimLeft(between, ")]}")
		if beside != "" && strings.Trim(beside, " \t") == "" && !keyword(line[at[0]:at[1]]) && (beside != between || !keyword(line[before[0]:before[1]])) {
			return true
		}
	}
	return false
}

// chosen joins the blocks that count: the last block that declares a wanted name, the block that declares a name that
// a counted block uses, and each block before these that declares something else. If no block declares a wanted name, each
// block counts that declares something or, if there is none, one that may be a body. A test counts only if it is wanted.
func chosen(blocks, wanted []string) string {
	if len(blocks) == 1 {
		return blocks[0]
	}
	binds := bindingsOf(blocks)
	counts, end := make([]bool, len(blocks)), len(blocks)
	var count func(name string, from map[string]int)
	count = func(name string, from map[string]int) {
		i, ok := from[name]
		if !ok || counts[i] {
			return
		}
		counts[i] = true
		for _, used := range word.FindAllString(blocks[i], -1) {
			if !binds.names[i][used] {
				count(used, binds.source)
			}
		}
	}
	for _, name := range wanted {
		count(name, binds.last)
	}
	if i := slices.Index(counts, true); i >= 0 {
		end = i
	}
	all := matched(declaration, strings.Join(blocks, "\n"))
	for i, b := range blocks[:end] {
		test := func(name string) bool { return strings.HasPrefix(strings.ToLower(name), "test") }
		names := matched(declaration, b)
		older := func(name string) bool { return end < len(blocks) && slices.Contains(wanted, name) }
		counts[i] = slices.ContainsFunc(names, func(n string) bool { return !test(n) }) && !slices.ContainsFunc(names, older) && withoutImports(b, all) == b
	}
	var code []string
	for i, b := range blocks {
		if counts[i] {
			code = append(code, b)
		}
	}
	if len(code) > 0 {
		whole := strings.Join(code, "\n")
		return withoutImports(whole, matched(declaration, whole))
	}
	if i := slices.IndexFunc(blocks, result.MatchString); i >= 0 {
		return blocks[i]
	}
	return longest(blocks)
}

// bindings say which blocks bind which names.
type bindings struct {
	names  []map[string]bool // that a block binds
	last   map[string]int    // by name: the last block that binds it
	source map[string]int    // by name: the block from which another block may need it
}

func bindingsOf(blocks []string) bindings {
	all := bindings{make([]map[string]bool, len(blocks)), map[string]int{}, map[string]int{}}
	for i, b := range blocks {
		all.names[i] = map[string]bool{}
		for _, name := range bound(b) {
			all.names[i][name], all.last[name] = true, i
		}
	}
	for i, b := range slices.Backward(blocks) { // of imports the first counts
		for _, names := range matched(imported, b) {
			for _, name := range word.FindAllString(names, -1) {
				all.names[i][name], all.source[name] = true, i
			}
		}
	}
	for _, re := range []*regexp.Regexp{constant, declaration} {
		for i, b := range blocks {
			for _, name := range matched(re, b) {
				all.source[name] = i
			}
		}
	}
	return all
}

// bound returns the names that declarations and assignments at the margin bind.
func bound(code string) []string {
	return append(matched(declaration, code), matched(assignment, code)...)
}

// withoutImports returns code without imports of names, as if these were in other files.
func withoutImports(code string, names []string) string {
	return imported.ReplaceAllStringFunc(code, func(s string) string {
		for _, name := range strings.Split(strings.Trim(imported.FindStringSubmatch(s)[1], "()"), ",") {
			if !strings.HasPrefix(s, "from") || !slices.Contains(names, word.FindString(name)) {
				return s
			}
		}
		return ""
	})
}

func longest(blocks []string) string {
	return slices.MaxFunc(blocks, func(a, b string) int { return len(a) - len(b) })
}

// placed returns code that binds name, the last name that the starter code declares at its margin. Code that does not is
// put where the starter code has something to complete: a function with the name of its last method there, a method with
// the name is taken out of its class, and other code is the body of the last function.
func placed(code, starter, name string) string {
	binds := bound(code)
	for _, names := range matched(imported, code) {
		binds = append(binds, word.FindAllString(names, -1)...)
	}
	if slices.Contains(binds, name) {
		return code
	}
	indent := "    "
	if methods := method.FindAllStringSubmatchIndex(starter, -1); len(methods) > 0 {
		m := methods[len(methods)-1]
		if regexp.MustCompile(`(?m)^class[ \t]+` + name + `\b`).MatchString(starter) {
			indent += starter[m[2]:m[3]]
		}
		if slices.Contains(binds, starter[m[4]:m[5]]) {
			return starter[:m[0]] + margin.ReplaceAllString(strings.Trim(code, "\n"), starter[m[2]:m[3]]+"$1") + "\n"
		}
	}
	if m := regexp.MustCompile(`(?m)^class[ \t]+(\w+).*\n(?:(?:[ \t].*)?\n)*?[ \t]+(?:async[ \t]+)?def[ \t]+` + name + `\b`).FindStringSubmatch(code); m != nil {
		return strings.TrimRight(code, "\n") + "\n" + name + " = " + m[1] + "()." + name + "\n"
	}
	if !tabs.MatchString(starter) {
		code = tabs.ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat("    ", len(s)) })
	}
	return strings.TrimRight(starter, " \t\n") + "\n" + indented(code, indent)
}

// indented returns the body of a function after restoring lost indentation: of the first line, or of all
// lines if other lines show that they lost theirs.
func indented(body, indent string) string {
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	if strings.TrimLeft(lines[0], " \t") != lines[0] {
		return strings.Join(lines, "\n") + "\n"
	}
	all := false
	for i, line := range lines[1:] {
		outer := line != "" && line == strings.TrimLeft(line, " \t") && !declaration.MatchString(line)
		all = all || outer || i == 0 && strings.HasSuffix(lines[0], ":") && !strings.HasPrefix(line, indent+" ")
	}
	for i, line := range lines {
		if i == 0 || all && line != "" {
			lines[i] = indent + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
