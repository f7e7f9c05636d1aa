package containerd_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// TestDevicesAreOwn: no device file in a sandbox is the host's or another sandbox's.
func TestDevicesAreOwn(t *testing.T) {
	_, run, image := ownIDs(t)
	var st unix.Stat_t
	report(t, unix.Stat("/dev/null", &st))
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

// TestSharedMemoryIsEverybodys: every user of a sandbox may write to /dev/shm.
func TestSharedMemoryIsEverybodys(t *testing.T) {
	_, run, image := ownIDs(t)
	sandbox := create(t, run, runtime.Config{Name: "shm", Image: image, User: "1000:1000"})
	if got := strings.Fields(output(t, sandbox, "sh", "-c", "stat -c %a /dev/shm; echo written >/dev/shm/x; cat /dev/shm/x")); !slices.Equal(got, []string{"1777", "written"}) {
		t.Errorf("%v", got)
	}
}
