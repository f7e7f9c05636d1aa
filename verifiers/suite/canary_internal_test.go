package suite

import (
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers/contrast"
)

// TestBrokenText: a broken program prints nothing, and fails after all that is run of it.
func TestBrokenText(t *testing.T) {
	const silent, fail = "BEGIN { open STDOUT, '>', '/dev/null' }\n", "\ndie 'this test has to fail';\n"
	for _, tt := range []struct{ name, path, text, want string }{
		{"perl", "t/a.t", "use Test::More;\nok(1);\n", silent + "use Test::More;\nok(1);\n" + fail},
		{"perl with data", "t/a.t", "#!/usr/bin/perl -w\nok(1);\n__END__\n=head1 A\n", "#!/usr/bin/perl -w\n" + silent + "ok(1);\n" + fail + "__END__\n=head1 A\n"},
		{"ruby with data", "a_test.rb", "DATA.each { |l| check(l) }\n__END__\n1\n", "$stdout.reopen(File::NULL)\nDATA.each { |l| check(l) }\n\nraise 'this test has to fail'\n__END__\n1\n"},
		{"perl that ends itself", "t/a.t", "exit(f() == 1 ? 0 : 1);\n", silent + "die(f() == 1 ? 0 : 1);\n" + fail},
		{"perl without its last words", "t/a.t", "POSIX::_exit(0);\n", silent + "POSIX::die(0);\n" + fail},
		{"javascript with exit of its own", "a.test.mjs", "import { exit } from 'process';\nexit(0);\non_exit(0);\n", "process.stdout.write = () => true;\nimport { exit } from 'process';\nprocess.abort(0);\non_exit(0);\n\nthrow new Error('this test has to fail');\n"},
		{"ruby that ends itself", "a_test.rb", "exit f() == 1\n", "$stdout.reopen(File::NULL)\nabort f() == 1\n\nraise 'this test has to fail'\n"},
		{"javascript that ends itself", "a.test.js", "process.exit(f() === 1 ? 0 : 1);\n", "process.stdout.write = () => true;\nprocess.abort(f() === 1 ? 0 : 1);\n\nthrow new Error('this test has to fail');\n"},
		{"go", "a_test.go", "func TestA(t *testing.T) {\n\tf(t)\n}\n", "func TestA(t *testing.T) { defer t.Error(\"this test has to fail\");\n\tf(t)\n}\n"},
		{"go without tests", "a.go", "package a\n", "package a\n\nfunc init() { panic(\"this test has to fail\") }\n"},
		{"c without main", "unit/test_a.c", "#include \"a.h\"\nstatic int half(int n) {\n\treturn n / 2;\n}\nvoid test_a(void) { assert(half(a()) == 1); }\nTEST(A, b)\n{\n\treturn;\n}\n", endsC + "#include \"a.h\"\nstatic int half(int n) {\n\treturn n / 2;\n}\nvoid test_a(void) { " + endC + " assert(half(a()) == 1); }\nTEST(A, b)\n{ " + endC + "\n\treturn;\n}\n"},
		{"c without tests", "unit/table.c", "int table[] = {1, 2};\n", "exit 1\n"},
		{"rust", "tests/a.rs", "fn help() {}\n#[test]\n#[ignore]\nfn adds() {\n    assert_eq!(add(1, 2), 3);\n}\n", "fn help() {}\n#[test]\n#[ignore]\nfn adds() { struct End; impl Drop for End { fn drop(&mut self) { std::process::abort() } } let _end = End;\n    assert_eq!(add(1, 2), 3);\n}\n"},
		{"unknown", "a.zig", "test {}", "exit 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must.Equal(t, tt.want, brokenText(contrast.File{Path: tt.path, Text: tt.text}))
		})
	}
}

// TestBroken: where other files of the language have tests, what these are compiled with stays.
func TestBroken(t *testing.T) {
	table := contrast.File{Path: "table.c", Text: "int table[] = {1, 2};\n"}
	test := contrast.File{Path: "test_a.c", Text: "void test_a(void) { assert(a()); }\n"}
	data := contrast.File{Path: "a.txt.in", Text: "1\n"}
	for _, tt := range []struct {
		others []contrast.File
		want   []string
	}{
		{[]contrast.File{table, test, data}, []string{table.Text, brokenText(test), brokenData}},
		{[]contrast.File{table, data}, []string{brokenData, brokenData}},
	} {
		var got []string
		for _, f := range (Suite{Others: tt.others}).broken(contrast.Calibration{}) {
			got = append(got, f.Text)
		}
		must.Equal(t, tt.want, got)
	}
}
