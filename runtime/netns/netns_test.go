package netns_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/runtime/netns"
)

func TestNew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 { // on whatever threads there are, the first among them
		more, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		if err := more.Close(); err != nil {
			t.Error(err)
		}
	}
	inside, err := os.Readlink(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if inside == host || inside == "" {
		t.Errorf("namespace %q, the host's is %q", inside, host)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
