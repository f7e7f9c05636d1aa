package run_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/run"
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
			for _, part := range []map[string]string{files, tt.limits} {
				for name, text := range part {
					name = filepath.Join(root, name)
					if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got, err := run.AvailableMemory(root); err != nil || got != tt.want {
				t.Errorf("%d, %v, want %d", got, err, tt.want)
			}
		})
	}
}
