package build

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestOwn: --chown takes names and numbers, as Docker does.
func TestOwn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"passwd": "root:x:0:0:r:/root:/bin/sh\nada:x:7:8:a:/home/ada:/bin/sh\n", "group": "root:x:0:\nstaff:x:50:ada\n"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Join(dir, "etc"), 0o755), os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644)))
	}
	image := must.OpenRoot(t, dir)
	for _, tt := range []struct {
		chown    string
		uid, gid int
		fault    string
	}{
		{"", 0, 0, ""}, {"ada", 7, 8, ""}, {"ada:", 7, 8, ""}, {"ada:staff", 7, 50, ""}, {"ada:9", 7, 9, ""}, {":staff", 0, 50, ""}, {"7", 7, 7, ""},
		{"1000", 1000, 1000, ""}, {"1000:staff", 1000, 50, ""}, {"bob", 0, 0, `"bob" is not in the image's /etc/passwd`}, {"ada:users", 0, 0, `"users" is not in the image's /etc/group`},
	} {
		u := &upper{image: image}
		err := u.own(tt.chown, "")
		if tt.fault != "" {
			if fault := (Fault{}); !errors.As(err, &fault) || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q: %v", tt.chown, err)
			}
		} else if err != nil || u.uid != tt.uid || u.gid != tt.gid {
			t.Errorf("%q: %d:%d, %v", tt.chown, u.uid, u.gid, err)
		}
	}
}
