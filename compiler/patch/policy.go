package patch

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Rule names paths that decide how a repository is tested, built or checked,
// and that a candidate may not change unless its task allows it.
type Rule struct {
	Kind string // describes the paths in messages and documentation
	// Tests is set for test files. New ones of a candidate are left out rather than
	// denied.
	Tests bool
	// Globs match lower-case names at any depth; one that ends in a slash matches a
	// directory with everything below it.
	Globs []string
}

// Rules returns the default policy, which docs/verifiers.md prints. The caller must
// not change it.
var Rules = sync.OnceValue(func() []Rule {
	rule := func(kind, globs string) Rule { return Rule{Kind: kind, Globs: strings.Fields(globs)} }
	tests := rule("tests", `test/ tests/ __tests__/ tests.py test_*.py *_test.py *_test.go *.test.* *.spec.* *_spec.rb *_test.rb *_test.exs
		*_test.cc *_test.cpp *_test.rs *_test.dart *test.java *tests.java *test.kt *test.php *tests.cs`)
	tests.Tests = true
	return []Rule{
		rule("configuration of tests", `conftest.py pytest.ini .pytest.ini tox.ini noxfile.py .coveragerc jest.config.* jest.setup.* vitest.config.*
			vitest.setup.* vitest.workspace.* karma.conf.* .mocharc* .nycrc* playwright.config.* cypress.config.* ava.config.* .rspec phpunit.xml* *.runsettings`),
		rule("loaded by an interpreter by itself", `sitecustomize.py usercustomize.py *.pth *.pyc *.pyo __pycache__/ *.egg-link *.dist-info/ *.egg-info/
			entry_points.txt pyvenv.cfg .npmrc .yarnrc* .node-version .nvmrc .python-version .tool-versions .envrc .env`),
		rule("shell", `*.sh *.bash *.zsh *.fish *.bat *.cmd *.ps1 .bashrc .bash_profile .profile .zshrc .zshenv`),
		rule("CI and hooks", `ci/ .ci/ .github/ .gitlab/ .circleci/ .buildkite/ .husky/ .githooks/ .travis.yml .gitlab-ci.yml azure-pipelines.yml
			jenkinsfile .drone.yml appveyor.yml .pre-commit-config.yaml .gitattributes .gitmodules`),
		rule("build of any language", `makefile gnumakefile *.mk justfile taskfile.y*ml cmakelists.txt *.cmake meson.build meson.options meson_options.txt configure
			configure.ac sconstruct sconscript build.bazel module.bazel workspace.bazel *.bzl dockerfile* containerfile docker-compose*.y*ml compose.y*ml`),
		rule("Python", `setup.py setup.cfg pyproject.toml manifest.in requirements*.txt constraints*.txt environment*.y*ml pipfile *.lock`),
		rule("JavaScript", `package.json package-lock.json npm-shrinkwrap.json pnpm-lock.yaml pnpm-workspace.yaml babel.config.* .babelrc* webpack.config.*
			rollup.config.* vite.config.* tsconfig*.json nx.json turbo.json lerna.json bunfig.toml deno.json*`),
		rule("Go and Rust", `go.mod go.sum go.work go.work.sum cargo.toml build.rs rust-toolchain* .cargo/`),
		rule("Java and Kotlin", `pom.xml build.gradle* settings.gradle* gradle.properties gradlew* mvnw* .mvn/ build.sbt`),
		rule("C#", `*.csproj *.fsproj *.sln directory.build.* nuget.config global.json`),
		rule("others", `gemfile rakefile *.gemspec composer.json mix.exs package.swift package.resolved pubspec.yaml stack.yaml cabal.project *.cabal`),
		tests,
	}
})

// Sensitive returns the first rule that names the path, and whether there is one.
func Sensitive(p string) (Rule, bool) {
	parts := strings.Split(strings.ToLower(p), "/")
	for _, r := range Rules() {
		for _, g := range r.Globs {
			directory, isDirectory := strings.CutSuffix(g, "/")
			names := parts[len(parts)-1:]
			if isDirectory {
				names = parts[:len(parts)-1]
			}
			if slices.ContainsFunc(names, func(name string) bool { ok, _ := path.Match(directory, name); return ok }) {
				return r, true
			}
		}
	}
	return Rule{}, false
}

// Match reports whether a glob matches the path or a directory above it. Globs are
// relative to the repository; "**" matches any number of directories, and a glob with
// a wildcard but no slash, such as *.py, matches at any depth.
func Match(globs []string, p string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		g = path.Clean(strings.TrimSpace(g))
		if g == "." {
			return true
		}
		if !strings.Contains(g, "/") && strings.ContainsAny(g, "*?[") && g != "**" {
			g = "**/" + g
		}
		return match(strings.Split(g, "/"), strings.Split(p, "/"))
	})
}

func match(glob, p []string) bool {
	switch {
	case len(glob) == 0:
		return true // the path, or something below it
	case glob[0] == "**":
		return match(glob[1:], p) && (len(glob) > 1 || len(p) > 0) || len(p) > 0 && match(glob, p[1:])
	case len(p) == 0:
		return false
	}
	ok, err := path.Match(glob[0], p[0])
	return err == nil && ok && match(glob[1:], p[1:])
}

var (
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
