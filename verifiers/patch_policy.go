package verifiers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/patch"
)

// judgePatch parses a candidate's patch and applies the path policy. A denied
// patch is a verdict.
func judgePatch(text string, policy compiler.CandidatePolicy) ([]patch.File, *Verdict) {
	deny := func(reason, format string, args ...any) ([]patch.File, *Verdict) {
		v := failed(reason, fmt.Sprintf(format, args...))
		return nil, &v
	}
	if strings.TrimSpace(text) == "" {
		return deny("empty_patch", "the candidate changed nothing")
	}
	files, err := patch.Parse(text)
	if err != nil {
		return deny("candidate_patch_invalid", "the candidate's patch cannot be read")
	}
	for _, f := range files {
		if f.Irregular() {
			return deny("candidate_policy_denied", "the patch makes or changes a link, a submodule or a special file")
		}
		if shadows(f) && !matchAny(policy.AllowSensitivePaths, f.New) {
			return deny("candidate_policy_denied", "%q: would be imported in place of a module of Python's or of the test runner's, and is not in allow_sensitive_paths", f.New)
		}
		for _, p := range f.Paths() {
			if reason := deniedPath(p, policy); reason != "" {
				return deny("candidate_policy_denied", "%q: %s", p, reason)
			}
		}
	}
	return files, nil
}

// deniedPath says why a path may not be changed, "" if it may.
func deniedPath(p string, policy compiler.CandidatePolicy) string {
	first, _, _ := strings.Cut(p, "/")
	switch {
	case patch.CheckPath(p) != nil:
		return "not a safe path"
	case strings.EqualFold(first, "securebench"):
		return "belongs to sbench"
	case len(policy.AllowPaths) > 0 && !matchAny(policy.AllowPaths, p) && !matchAny(policy.AllowSensitivePaths, p):
		return "not in allow_paths"
	case sensitive(p) && !matchAny(policy.AllowSensitivePaths, p):
		return "decides how tests, builds or checks run, and is not in allow_sensitive_paths"
	}
	return ""
}

// sensitive paths steer what judges the candidate: tests, their configuration,
// what an interpreter loads by itself, builds, dependencies, CI.
func sensitive(p string) bool {
	p = strings.ToLower(p)
	folders := strings.Split(path.Dir(p), "/")
	for _, f := range []string{"test", "tests", "__tests__", ".github", ".gitlab", ".circleci", ".buildkite"} {
		if slices.Contains(folders, f) {
			return true
		}
	}
	return matchAny(sensitiveNames(), path.Base(p))
}

func sensitiveNames() []string {
	return strings.Fields(`
		conftest.py sitecustomize.py usercustomize.py *.pth *.sh *.bash .gitattributes .gitmodules
		pytest.ini .pytest.ini tox.ini setup.cfg setup.py pyproject.toml noxfile.py .coveragerc manifest.in
		requirements*.txt constraints*.txt environment*.yml environment*.yaml pipfile package.json
		makefile gnumakefile *.mk cmakelists.txt meson.build dockerfile containerfile go.mod cargo.toml pom.xml build.gradle* gemfile
		jest.config.* vitest.config.* karma.conf.* .mocharc* babel.config.* webpack.config.* tsconfig*.json
		*.lock package-lock.json npm-shrinkwrap.json pnpm-lock.yaml go.sum
		.travis.yml .gitlab-ci.yml azure-pipelines.yml jenkinsfile .pre-commit-config.yaml appveyor.yml`)
}

// matchAny matches a slash path against globs, in which "**" stands for any
// number of folders, and a glob that ends in a slash for all below it.
func matchAny(globs []string, p string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		if strings.HasSuffix(g, "/") {
			g += "**"
		}
		return match(strings.Split(g, "/"), strings.Split(p, "/"))
	})
}

func match(glob, p []string) bool {
	for len(glob) > 0 {
		if glob[0] == "**" {
			for i := range len(p) + 1 {
				if match(glob[1:], p[i:]) {
					return true
				}
			}
			return false
		}
		if len(p) == 0 {
			return false
		}
		if ok, err := path.Match(glob[0], p[0]); err != nil || !ok {
			return false
		}
		glob, p = glob[1:], p[1:]
	}
	return len(p) == 0
}
