package candidate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/internal/test/must"
)

func TestCheckOwner(t *testing.T) {
	own, other := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), fmt.Sprintf("%d:%d", os.Getuid()+1, os.Getgid()+1)
	tests := []struct {
		name, user string
		mode, src  os.FileMode
		bad        bool
	}{
		{"the owner", own, 0o755, 0o755, false},
		{"another user", other, 0o755, 0o755, true},
		{"another user, writable for everybody", other, 0o777, 0o755, false},
		{"another user, with one writable directory", other, 0o755, 0o777, false},
		{"another user of the group", fmt.Sprintf("%d:%d", os.Getuid()+1, os.Getgid()), 0o775, 0o755, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			err := errors.Join(os.MkdirAll(filepath.Join(dir, "repo/src"), 0o755), os.Mkdir(filepath.Join(dir, "repo/.git"), 0o755),
				os.Chmod(filepath.Join(dir, "repo"), test.mode), os.Chmod(filepath.Join(dir, "repo/src"), test.src), os.Chmod(filepath.Join(dir, "repo/.git"), 0o777))
			must.Do(t, err)
			root := must.OpenRoot(t, dir)
			err = candidate.CheckOwner(root, "/repo", test.user)
			if (err != nil) != test.bad || test.bad && (!strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), other)) {
				t.Errorf("error %v", err)
			}
		})
	}
}
