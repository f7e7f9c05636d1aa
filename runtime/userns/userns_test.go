package userns_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/securebench/sbench/runtime/containerd/containerdtest"
	"github.com/securebench/sbench/runtime/userns"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	os.Exit(m.Run())
}

// TestNew: a process that joins the namespaces has the mappings, capabilities, and a
// network namespace other than the host's.
func TestNew(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root, which CI must have")
		}
		t.Skip("needs root")
	}
	n, err := userns.New(0, []userns.Mapping{{Size: 1}, {First: 1, Outside: 1, Size: 100}})
	if err != nil {
		t.Fatal(err)
	}
	script := "tr -s ' ' </proc/self/uid_map; ip=$(readlink /proc/self/ns/net); echo $ip; grep CapEff /proc/self/status"
	cmd := exec.Command("nsenter", "--user="+n.Path(), "--net=/proc/self/fd/3", "--preserve-credentials", "sh", "-c", script)
	cmd.ExtraFiles = []*os.File{n.Network()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 4 || strings.TrimSpace(lines[0]) != "0 0 1" || strings.TrimSpace(lines[1]) != "1 1 100" || lines[2] == own || strings.HasSuffix(lines[3], "0000000000000000") {
		t.Errorf("%q", lines)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err == nil {
		t.Error("closed twice")
	}
}

func TestNoMappings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if n, err := userns.New(0, []userns.Mapping{{Size: 0}}); err == nil {
		t.Errorf("a namespace of nobody: %v", n.Close())
	}
}
