package page_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// browse opens an address in a headless Chromium, and returns what it prints. Messages, exceptions and what the
// policy blocks are errors. Without Chromium the test is skipped, or fails in CI.
func browse(t *testing.T, address string, more ...string) string {
	t.Helper()
	printed, console := browser(t, address, more...)
	if len(console) > 0 {
		t.Errorf("%s: the page complains: %.2000s", address, strings.Join(console, "\n"))
	}
	return printed
}

// dump returns the HTML of the page after its script has run.
func dump(t *testing.T, address string) string {
	t.Helper()
	return browse(t, address, "--dump-dom")
}

// browser is browse, and also returns what the page reports.
func browser(t *testing.T, address string, more ...string) (printed string, console []string) {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no chromium in PATH: install Debian's package chromium")
		}
		t.Skip("SKIPPED, nothing was tested: no chromium in PATH; Debian's package chromium has it")
	}
	args := append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
		"--user-data-dir=" + t.TempDir(), "--enable-logging=stderr", "--virtual-time-budget=3000",
	}, more...)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append(args, address)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) { // its exit status says nothing of the page
		t.Fatal(err)
	}
	return stdout.String(), regexp.MustCompile(`(?m)^.*:CONSOLE.*$`).FindAllString(stderr.String(), -1)
}
