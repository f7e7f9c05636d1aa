package sandbox_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
)

// TestDevicesAreOwn: no device file in a sandbox is the host's or another sandbox's.
func TestDevicesAreOwn(t *testing.T) {
	containerdtest.OnHostKernel(t)
	_, run, image := ownIDs(t)
	var st unix.Stat_t
	must.Report(t, unix.Stat("/dev/null", &st))
	seen := map[string]bool{strconv.FormatUint(st.Dev, 10): true}
	for range 2 {
		sandbox := create(t, run, runtime.Config{Name: "devices", Image: image})
		got := strings.Fields(output(t, sandbox, "sh", "-c", "stat -c '%d' /dev/null; for d in null zero full random urandom tty; do stat -c %t:%T:%a:%u:%d /dev/$d; done; echo x >/dev/null; head -c 1 /dev/urandom | wc -c"))
		if seen[got[0]] {
			t.Errorf("/dev/null is on the device %s, which another's is on too", got[0])
		}
		seen[got[0]] = true
		want := []string{got[0]}
		for _, number := range []string{"1:3", "1:5", "1:7", "1:8", "1:9", "5:0"} {
			want = append(want, number+":666:0:"+got[0])
		}
		if want = append(want, "1"); !slices.Equal(got, want) {
			t.Errorf("devices %v, want %v", got, want)
		}
	}
}

// TestNullIsOwn: a standard input from nowhere is the sandbox's own /dev/null, which no path of the
// host's names.
func TestNullIsOwn(t *testing.T) {
	containerdtest.OnHostKernel(t)
	opts := containerdtest.Options()
	usual, image := containerdtest.NewRun(t, containerdtest.OpenWith(t, opts))
	opts.UserNamespace = "host"
	host, _ := containerdtest.NewRun(t, containerdtest.OpenWith(t, opts))
	for _, test := range []struct {
		ids        string
		run        *sandbox.Engine
		persistent bool
		user       string
	}{
		{"usual", usual, false, ""}, {"usual", usual, true, ""}, {"usual", usual, true, "1000:1000"},
		{"those of the host", host, false, ""}, {"those of the host", host, true, ""},
	} {
		sandbox := create(t, test.run, runtime.Config{Name: "null", Image: image, Persistent: test.persistent, User: test.user})
		got := output(t, sandbox, "sh", "-c", "stat -L -c %d:%i:%t:%T:%u /proc/self/fd/0 /dev/null | sort -u | wc -l; readlink /proc/self/fd/0; stat -c %a /dev/null; wc -c; echo x 2>/dev/null >/dev/null")
		if fields := strings.Fields(got); len(fields) != 4 || fields[0] != "1" || fields[1] != "/null" && fields[1] != "/dev/null" || fields[2] != "666" || fields[3] != "0" {
			t.Errorf("ids: %s, persistent %v, user %q: %q", test.ids, test.persistent, test.user, got)
		}
	}
	// A sandbox that has put something else in its place is still of use.
	sandbox := create(t, usual, runtime.Config{Name: "without", Image: image, Persistent: true})
	must.Equal(t, "666", output(t, sandbox, "sh", "-c", "rm /dev/null; mkfifo /dev/null; stat -L -c %a /proc/self/fd/0"))
	must.Equal(t, "0", output(t, sandbox, "wc", "-c"))
}
