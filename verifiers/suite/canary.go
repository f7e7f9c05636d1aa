package suite

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/verifiers/contrast"
)

// broken returns the hidden files so that no candidate can pass them (the canary).
func (s Suite) broken(c contrast.Calibration) []contrast.File {
	if s.Redirected != nil {
		return s.Redirected
	}
	files := slices.Concat(s.Files, s.Others)
	tested := map[string]bool{} // languages with tests that fail at their end
	for _, f := range files {
		tested[languageOf(f)] = tested[languageOf(f)] || brokenText(f) != brokenData
	}
	for i, f := range files {
		text, err := contrast.Apply(f, c.Canary...)
		switch {
		case !IsPython(f):
			if text = brokenText(f); text == brokenData && languageOf(f) != "" && tested[languageOf(f)] {
				text = f.Text // without it, the tests would not be compiled, and no candidate would run
			}
		case err != nil || text == f.Text: // this interpreter does not read it
			text = beginning(f.Text, "raise AssertionError")
		}
		files[i].Text = text
	}
	return files
}

// languageOf returns the language of a file that compilers read together with others; "" for other files.
func languageOf(f contrast.File) string {
	switch strings.ToLower(path.Ext(f.Path)) {
	case ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp":
		return "c"
	case ".rs":
		return "rust"
	}
	return ""
}

// brokenText returns a file's text so that it fails: in a known language at its end, since a candidate that
// ends the process would not be noticed otherwise. It prints nothing that a script may read.
func brokenText(f contrast.File) string {
	const why = "this test has to fail"
	switch strings.ToLower(path.Ext(f.Path)) {
	case ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx":
		return beginning(exitCalls.ReplaceAllString(f.Text, "process.abort("), "process.stdout.write = () => true;") + "\nthrow new Error('" + why + "');\n"
	case ".rb":
		return ending(beginning(exits.ReplaceAllString(f.Text, "abort"), "$stdout.reopen(File::NULL)"), "raise '"+why+"'")
	case ".pl", ".t":
		return ending(beginning(exits.ReplaceAllString(f.Text, "die"), "BEGIN { open STDOUT, '>', '/dev/null' }"), "die '"+why+"';") // modules copy STDOUT
	case ".sh", ".bash":
		return f.Text + "\nexit 1\n"
	case ".go":
		if goTest.MatchString(f.Text) {
			return goTest.ReplaceAllString(f.Text, "$0 defer $1.Error(\""+why+"\");")
		}
		return f.Text + "\nfunc init() { panic(\"" + why + "\") }\n"
	case ".rs":
		if rustTest.MatchString(f.Text) {
			return rustTest.ReplaceAllString(f.Text, "$0 struct End; impl Drop for End { fn drop(&mut self) { std::process::abort() } } let _end = End;") // a panic may be expected
		}
	case ".txt", ".rst", ".md": // a doctest, or a text that is compared
		return f.Text + "\n>>> raise AssertionError('" + why + "')\n"
	case ".c", ".cc", ".cpp", ".cxx":
		if strings.Contains(f.Text, "main(") {
			return "#define main tested_main\n" + f.Text + "\n#undef main\n#include <stdio.h>\nint main(int argc, char **argv) { if (freopen(\"/dev/null\", \"w\", stdout)) ((int (*)(int, char **))tested_main)(argc, argv); return 1; }\n"
		}
		if cTest.MatchString(f.Text) { // a program has its main in another file
			return endsC + cTest.ReplaceAllString(f.Text, "$0 "+endC)
		}
	}
	return brokenData
}

// beginning returns a script with one more line at its beginning, after the line that names the interpreter.
func beginning(text, line string) string {
	if strings.HasPrefix(text, "#!") {
		first, rest, _ := strings.Cut(text, "\n")
		return first + "\n" + line + "\n" + rest
	}
	return line + "\n" + text
}

// exits matches how a script of Perl or Ruby ends itself, with a status that may be 0, and exitCalls how one of JavaScript does.
var (
	exits     = regexp.MustCompile(`\b_?exit\b`)
	exitCalls = regexp.MustCompile(`\b(?:process\.)?exit\(`)
)

// goTest matches the beginning of a test function. Each fails, since what candidates add can keep tests from running.
var goTest = regexp.MustCompile(`(?m)^func Test\w*\(([a-zA-Z]\w*) \*testing\.T\) \{`)

// rustTest matches the beginning of a test function.
var rustTest = regexp.MustCompile(`#\[(?:\w+::)*test\b[^\]]*\](?:\s*#\[[^\]]*\])*\s*(?:pub\s+)?(?:async\s+)?fn\s+\w+\(\)[^{;]*\{`)

// cTest matches the beginning of a function that is named like a test, or that a macro of that name makes.
var cTest = regexp.MustCompile(`(?mi)^(?:[\w:*]+[ \t*]+)*\w*(?:test|spec|check)\w*[ \t]*\((?:[^;{}()]|\([^;{}()]*\))*\)\s*\{`)

// endsC declares what endC, at the beginning of a function, calls at its end.
const (
	endsC = "static void this_test_has_to_fail(int *end) { (void)end; __builtin_trap(); }\n"
	endC  = "__attribute__((cleanup(this_test_has_to_fail))) int end_of_test = 0;"
)

var programEnd = regexp.MustCompile(`(?m)^__(?:END|DATA)__\r?$`)

// ending returns a script of Perl or Ruby with a line after all that is run of it.
func ending(text, line string) string {
	end := len(text)
	if at := programEnd.FindStringIndex(text); at != nil {
		end = at[0]
	}
	return text[:end] + "\n" + line + "\n" + text[end:]
}

// IsCode reports whether a file is a program that fails if it is broken, whatever it is run for. Data may be a
// candidate's input, a shell script may end before what is put at its end, and a program may lack a file in C without main.
func IsCode(f contrast.File) bool {
	ext, text := strings.ToLower(path.Ext(f.Path)), brokenText(f)
	return IsPython(f) || text != brokenData && !strings.HasPrefix(text, endsC) && !slices.Contains([]string{".sh", ".bash", ".txt", ".rst", ".md"}, ext)
}

// IsPython reports whether a file is a program in Python, by its name or its first line.
func IsPython(f contrast.File) bool {
	ext := path.Ext(f.Path)
	return ext == ".py" || ext == "" && pythonProgram.MatchString(f.Text)
}

var pythonProgram = regexp.MustCompile(`^#!.*\bpython`)

// brokenData replaces a file in an unknown language. No shell succeeds with it, and it is the text of no
// program or answer.
const brokenData = "exit 1\n"
