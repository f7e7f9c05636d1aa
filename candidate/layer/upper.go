package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
)

// MakeParents makes the directories above name in an upper directory (see runtime.Changes): as
// the image has them or, where it has none, those of root with mode 0755.
func MakeParents(to, image *os.Root, name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	if info, err := to.Lstat(dir); err == nil && info.IsDir() {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s is no directory", dir))
	}
	if err := MakeParents(to, image, dir); err != nil {
		return err
	}
	a := applier{to: to, image: image}
	if info, err := image.Lstat(dir); err == nil && info.IsDir() {
		return errors.Join(a.passOver(&Entry{Path: dir, Kind: Directory}), a.setTimes())
	}
	return to.Mkdir(dir, 0o755)
}
