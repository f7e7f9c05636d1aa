package admission_test

import (
	"context"
	"testing"

	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/admission"
)

// TestAvailableMemory: the least limit of all control groups counts, wherever it is set.
func TestAvailableMemory(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	tests := []struct {
		name, groups string
		limits       map[string]string
		want         int64
	}{
		{"none", "0::/user.slice/me\n", map[string]string{v2 + "user.slice/me/memory.max": "max\n"}, 1 << 30},
		{"no control groups", "", nil, 1 << 30},
		{"a container's", "0::/\n", map[string]string{v2 + "memory.max": "4096\n"}, 4096},
		{"own", "0::/a/b\n", map[string]string{v2 + "a/b/memory.max": "4096\n", v2 + "a/memory.max": "8192\n"}, 4096},
		{"of an ancestor", "0::/a/b/c\n", map[string]string{v2 + "a/b/c/memory.max": "max\n", v2 + "a/b/memory.max": "8192\n", v2 + "a/memory.max": "4096\n"}, 4096},
		{"of another", "0::/a\n", map[string]string{v2 + "b/memory.max": "4096\n"}, 1 << 30},
		{"more than there is", "0::/a\n", map[string]string{v2 + "a/memory.max": "99999999999\n"}, 1 << 30},
		{"version 1", "5:pids:/x\n4:cpu,memory:/a/b\n0::/\n", map[string]string{v1 + "a/b/memory.limit_in_bytes": "9223372036854771712\n", v1 + "a/memory.limit_in_bytes": "4096\n", v1 + "x/memory.limit_in_bytes": "1\n"}, 4096},
		{"version 1, the group is not mounted", "4:memory:/docker/0123\n", map[string]string{v1 + "memory.limit_in_bytes": "4096\n"}, 4096},
		{"outside of the namespace", "0::/../other\n", map[string]string{v2 + "memory.max": "4096\n"}, 4096},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string]string{"proc/meminfo": "MemTotal:  2097152 kB\nMemAvailable:  1048576 kB\n", "proc/self/cgroup": tt.groups}
			filetest.Write(t, root, files)
			filetest.Write(t, root, tt.limits)
			if got, err := admission.AvailableMemory(root); err != nil || got != tt.want {
				t.Errorf("%d, %v, want %d", got, err, tt.want)
			}
		})
	}
}

// TestAvailablePids: the least limit of the kernel and of the container counts.
func TestAvailablePids(t *testing.T) {
	const kernel = "proc/sys/kernel/"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"much", map[string]string{kernel + "pid_max": "4194304\n", kernel + "threads-max": "190000\n"}, 16384},
		{"few threads", map[string]string{kernel + "pid_max": "32768\n", kernel + "threads-max": "4000\n"}, 2000},
		{"a container's", map[string]string{kernel + "pid_max": "4194304\n", "sys/fs/cgroup/pids.max": "2048\n"}, 1024},
		{"a container's, version 1", map[string]string{kernel + "pid_max": "4194304\n", "sys/fs/cgroup/pids/pids.max": "2048\n"}, 1024},
		{"a container without", map[string]string{kernel + "pid_max": "4194304\n", "sys/fs/cgroup/pids.max": "max\n"}, 16384},
	} {
		root := t.TempDir()
		filetest.Write(t, root, tt.files)
		if got := admission.AvailablePids(root); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestSpare: an attempt that was ended while it waited keeps no other attempt from further sandboxes.
func TestSpare(t *testing.T) {
	h, err := admission.New(t.TempDir(), 1)
	must.Do(t, err)
	must.Do(t, h.Take(t.Context(), admission.Need{}, nil))
	ended, end := context.WithCancel(t.Context())
	end()
	must.Is(t, h.Take(ended, admission.Need{}, nil), context.Canceled)
	h.Give(admission.Need{})
	if !h.Spare(admission.Need{}) {
		t.Error("an attempt that does not wait any more is waited for")
	}
}
