package patch

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Rule names files that steer how tests run. They belong to the tests, unless a task allows a
// candidate to change them.
type Rule struct {
	// Tools are programs that read the files. The rule counts for a command that runs one of them, and for
	// a command that runs a program unknown to the rules, such as a script, since it may start any tool. A
	// rule without tools always counts.
	Tools []string
	// Globs match names at any depth. A glob without capitals matches names in upper case, too. A glob that
	// ends in a slash matches a directory with everything below it.
	Globs []string
}

var rules = sync.OnceValue(func() []Rule {
	rule := func(tools, globs string) Rule { return Rule{strings.Fields(tools), strings.Fields(globs)} }
	return []Rule{ // the first is the configuration of test tools, and what interpreters load by themselves
		rule("", `conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml pyproject.toml setup.cfg tox.ini noxfile.py .coveragerc jest.config.* jest.setup.*
			vitest.config.* vitest.setup.* vitest.workspace.* karma.conf.* .mocharc* .nycrc* playwright.config.* cypress.config.* ava.config.* .rspec phpunit.xml* *.runsettings
			sitecustomize.py usercustomize.py *.pth *.pyc *.pyo __pycache__/ *.egg-link *.dist-info/ *.egg-info/
			entry_points.txt pyvenv.cfg .npmrc .yarnrc* .node-version .nvmrc .python-version .tool-versions .envrc .env`),
		rule("python python2 python3 pytest py.test unittest doctest coverage tox nox nosetests nose2 trial django-admin", ""),
		rule("bats shellspec", "*.bats .bashrc .bash_profile .profile"),
		rule("make gmake cmake ctest ninja meson just task bazel bazelisk scons docker podman", `makefile gnumakefile *.mk justfile taskfile.y*ml
			cmakelists.txt *.cmake meson.build meson.options meson_options.txt configure configure.ac sconstruct sconscript build.bazel module.bazel workspace.bazel *.bzl
			dockerfile* containerfile docker-compose*.y*ml compose.y*ml`),
		rule("node npm npx yarn pnpm bun deno jest vitest mocha ava karma cypress playwright ng nx turbo lerna tsc", `package.json package-lock.json
			npm-shrinkwrap.json pnpm-lock.yaml pnpm-workspace.yaml yarn.lock babel.config.* .babelrc* webpack.config.* rollup.config.* vite.config.* tsconfig*.json
			nx.json turbo.json lerna.json bunfig.toml deno.json*`),
		rule("go gotestsum ginkgo", "go.mod go.sum go.work go.work.sum"),
		rule("cargo rustc", "cargo.toml cargo.lock build.rs rust-toolchain* .cargo/"),
		rule("mvn mvnw gradle gradlew sbt ant java", "pom.xml build.gradle* settings.gradle* gradle.properties gradlew* mvnw* .mvn/ build.sbt build.xml"),
		rule("dotnet msbuild", "*.csproj *.fsproj *.sln directory.build.* nuget.config global.json"),
		rule("ruby bundle rake rspec minitest php composer phpunit", "gemfile gemfile.lock rakefile *.gemspec composer.json composer.lock"),
		rule("perl prove", "makefile.pl build.pl .proverc"),
		rule("mix swift dart flutter stack cabal", "mix.exs mix.lock package.swift package.resolved pubspec.yaml stack.yaml cabal.project *.cabal"),
	}
})

// Steering returns the rules that count for the command args.
func Steering(args []string) []Rule {
	named, opaque := map[string]bool{}, true
	for i, file := range Runners(args) {
		base := path.Base(file)
		tool := strings.TrimRight(strings.TrimSuffix(base, ".py"), "0123456789.")
		known := slices.ContainsFunc(rules(), func(r Rule) bool { return slices.Contains(r.Tools, tool) || slices.Contains(r.Tools, base) })
		opaque = opaque && i > 0 || !known && base != "__main__.py" && !builtins.MatchString(base)
		named[tool], named[base] = true, true
	}
	return slices.DeleteFunc(slices.Clone(rules()), func(r Rule) bool {
		return len(r.Tools) > 0 && !opaque && !slices.ContainsFunc(r.Tools, func(tool string) bool { return named[tool] })
	})
}

// builtins are programs that start no other program.
var builtins = regexp.MustCompile(`^(cd|set|export|unset|exit|echo|printf|test|\[|true|false|cat|tee|grep|tail|head|sed|awk|find|ls|mkdir|rm|cp|pip|uv|for|done|fi)$`)

// Names reports whether the rule names the path.
func (r Rule) Names(p string) bool { return named(r.Globs, p) }

// Globs of files and directories that belong to the tests by their names, as in [Rule]. docs/verifiers.md
// prints them.
var (
	testFiles = sync.OnceValue(func() []string {
		return strings.Fields(`tests.py test_*.py *_test.py *_test.go *.test.* *.spec.* *_spec.rb *_test.rb *_test.exs *_test.cc *_test.cpp *_test.rs
			*_test.dart *Test.java *Tests.java *Test.kt *Test.php *Tests.cs *.t`)
	})
	testDirectories = sync.OnceValue(func() []string {
		return strings.Fields("test/ tests/ __tests__/ spec/ t/ testdata/ test_data/ test-data/ __snapshots__/ __fixtures__/")
	})
)

// TestFile reports whether the path is named like a test.
func TestFile(p string) bool { return named(testFiles(), p) }

// TestDirectory returns the first directory above the path that is named like one of tests; "" if
// there is none.
func TestDirectory(p string) string {
	for i, r := range p {
		if r == '/' && named(testDirectories(), p[:i+1]) {
			return p[:i]
		}
	}
	return ""
}

func named(globs []string, p string) bool {
	parts := strings.Split(p, "/")
	return slices.ContainsFunc(globs, func(g string) bool {
		directory, isDirectory := strings.CutSuffix(g, "/")
		names := parts[len(parts)-1:]
		if isDirectory {
			names = parts[:len(parts)-1]
		}
		return slices.ContainsFunc(names, func(name string) bool {
			lower, _ := path.Match(directory, strings.ToLower(name))
			exact, _ := path.Match(directory, name)
			return lower || exact
		})
	})
}

// Match reports whether a glob matches the path or a directory above it. Globs are relative to the repository. As in
// Python's fnmatch, which SecureBench uses, wildcards match slashes, too. Unlike there, "**/a" also matches "a".
func Match(globs []string, p string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		glob = path.Clean(strings.TrimSpace(glob))
		e, err := regexp.Compile("(?s)^" + globPart.ReplaceAllStringFunc(glob, expression) + "(/|$)")
		return glob == "." || err == nil && e.MatchString(p)
	})
}

func expression(part string) string {
	switch {
	case part == "**/":
		return "(.*/)?"
	case part == "*":
		return ".*"
	case part == "?":
		return "."
	case part[0] == '[' && len(part) > 2:
		set, not := strings.CutPrefix(part[1:len(part)-1], "!")
		if set = classes.Replace(set); not {
			set = "^" + set
		}
		return "[" + set + "]"
	}
	return regexp.QuoteMeta(part)
}

var (
	globPart    = regexp.MustCompile(`\*\*/|\*|\?|\[!?\]?[^\]]*\]|\[|[^*?\[]+`)
	classes     = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "^", `\^`)
	commandWord = regexp.MustCompile(`[^\s'"]+|\n`)
	separators  = strings.NewReplacer(";", "\n", "&", "\n", "|", "\n", "(", "\n", ")", "\n")
	// starters are words that may precede the program or script that a command runs.
	starters = regexp.MustCompile(`^(env|exec|time|timeout|[0-9.]+[smh]?|nice|xvfb-run|source|\.|then|do|else|if|while|!|python[0-9.]*|bash|sh|dash|zsh|node|ruby|perl|php)$`)
)

// Runners guesses which files of a repository a command executes or has an
// interpreter run. The paths are relative to the repository; some may not exist.
func Runners(args []string) []string {
	var text strings.Builder
	for i, a := range args {
		if i > 0 && args[i-1] == "-c" || strings.Contains(a, "\n") { // a shell script
			a = "\n" + separators.Replace(a) + "\n"
		}
		text.WriteString(" " + a)
	}
	var found []string
	first, previous := true, ""
	for _, word := range commandWord.FindAllString(text.String(), -1) {
		switch {
		case word == "\n":
			first = true
		case !first || previous == "-W" || previous == "-X":
		case previous == "-m":
			module := strings.ReplaceAll(word, ".", "/")
			found, first = append(found, module+".py", module+"/__main__.py"), false
		case starters.MatchString(path.Base(word)) || strings.HasPrefix(word, "-") || strings.Contains(word, "="):
		default:
			found, first = append(found, path.Clean(word)), false
		}
		previous = word
	}
	return found
}
