package workspace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrAttributes means that a list of attributes is missing or malformed, or does not match
// its tree.
var ErrAttributes = errors.New("the list of owners and modes does not fit")

const (
	maxListBytes = 256 << 20 // of a list of attributes
	maxListLine  = 512 << 10 // of its lines: enough for a path of 512 names with every byte escaped
	permBits     = 0o7777
)

// Attributes are what the copy of an entry of a tree may lose.
type Attributes struct {
	Path string // relative to the tree, with slashes; may contain any byte but NUL
	// UID and GID are numbers in the user namespace in which the tree was read.
	UID, GID uint32
	// Mode are the permission bits. They mean nothing for a symbolic link. For a fifo and a socket, Mode has the type,
	// too, since the copy is an empty file.
	Mode  uint32
	Links int // a number that the hard links of a file have in common; 0 for a file with one name
}

// line returns the only valid form of an entry in a list: a JSON object in ASCII without
// white space, and a line break. In the path, % " \ and each byte that is not printable ASCII are
// written as % and two upper-case hexadecimal digits.
func (a Attributes) line() []byte {
	links := ""
	if a.Links != 0 {
		links = fmt.Sprintf(`,"links":%d`, a.Links)
	}
	return fmt.Appendf(nil, `{"path":"%s","uid":%d,"gid":%d,"mode":"%04o"%s}`+"\n", escapePath(a.Path), a.UID, a.GID, a.Mode, links)
}

func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c < ' ' || c > '~' || c == '%' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// parseAttributes accepts only what line writes.
func parseAttributes(line []byte) (Attributes, error) {
	var raw struct {
		Path  string `json:"path"`
		UID   uint32 `json:"uid"`
		GID   uint32 `json:"gid"`
		Mode  string `json:"mode"`
		Links int    `json:"links"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Attributes{}, errors.New("is no entry")
	}
	mode, err := strconv.ParseUint(raw.Mode, 8, 32)
	path, pathErr := url.PathUnescape(raw.Path)
	a := Attributes{Path: path, UID: raw.UID, GID: raw.GID, Mode: uint32(mode), Links: raw.Links}
	const none = ^uint32(0) // chown(2) would leave the owner unchanged
	if err != nil || pathErr != nil || a.Links < 0 || a.Mode > permBits && !special(a.Mode) || a.UID == none || a.GID == none || !bytes.Equal(a.line(), line) {
		return Attributes{}, errors.New("is no entry")
	}
	return a, nil
}

// special reports whether a mode is of a fifo or a socket, which a stored tree keeps.
func special(mode uint32) bool {
	return mode&unix.S_IFMT == unix.S_IFIFO || mode&unix.S_IFMT == unix.S_IFSOCK
}

// AttributesWriter writes a list of attributes to a file. It is not safe for concurrent use.
type AttributesWriter struct {
	file *os.File
	out  *bufio.Writer
	sum  hash.Hash
	size int64
}

// NewAttributesWriter creates the file name, which must not exist. The caller calls Close or Discard.
func NewAttributesWriter(name string) (*AttributesWriter, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &AttributesWriter{file: f, out: bufio.NewWriter(f), sum: sha256.New()}, nil
}

// Add appends an entry. Errors match ErrTooBig if the list becomes longer than 256 MiB.
func (w *AttributesWriter) Add(a Attributes) error {
	line := a.line()
	if w.size += int64(len(line)); w.size > maxListBytes || len(line) > maxListLine {
		return fmt.Errorf("%w: the list of owners and modes would be longer than %d bytes", ErrTooBig, maxListBytes)
	}
	w.sum.Write(line)
	_, err := w.out.Write(line)
	return err
}

// Close writes the rest of the list and returns the digest of all of it.
func (w *AttributesWriter) Close() (digest string, err error) {
	return DigestOf(w.sum), errors.Join(w.out.Flush(), w.file.Close())
}

// Discard closes and removes the file.
func (w *AttributesWriter) Discard() error {
	return errors.Join(w.file.Close(), os.Remove(w.file.Name()))
}

// attributesReader reads a list of attributes during one walk. It gives each listed entry its
// attributes, and checks that the tree has every listed entry in the order of the walk (see
// TreeReport.Digest). It uses no path of the list to open a file.
type attributesReader struct {
	file      *os.File
	in        *bufio.Reader
	remaining int64 // bytes until maxListBytes
	line      int
	next      Attributes
	err       error // io.EOF at the end, other errors match ErrAttributes
}

func (r *attributesReader) close() {
	if r != nil {
		shut(r.file)
	}
}

func (r *attributesReader) advance() {
	r.line++
	line, err := r.in.ReadSlice('\n')
	r.remaining -= int64(len(line))
	switch {
	case errors.Is(err, io.EOF) && len(line) == 0:
		r.err = io.EOF
	case errors.Is(err, io.EOF):
		r.err = r.wrong("is not finished")
	case errors.Is(err, bufio.ErrBufferFull) || r.remaining < 0:
		r.err = r.wrong("is too long")
	case err != nil:
		r.err = err
	default:
		if r.next, err = parseAttributes(line); err != nil {
			r.err = r.wrong(err.Error())
		}
	}
}

// wrong returns an error that does not quote the line, which an agent may have written.
func (r *attributesReader) wrong(what string) error {
	return fmt.Errorf("%w: line %d %s", ErrAttributes, r.line, what)
}

// apply gives st the attributes of the entry rel if the list has them next, and returns the number of its hard links.
// An entry that the list does not have belonged to root, whoever owns the kept file, and had one name.
func (r *attributesReader) apply(rel string, st *unix.Stat_t) (links int, err error) {
	st.Uid, st.Gid = 0, 0
	if errors.Is(r.err, io.EOF) {
		return 0, nil
	}
	if r.err != nil || r.next.Path != rel {
		return 0, r.err
	}
	kind := st.Mode & unix.S_IFMT
	if special(r.next.Mode) && kind == unix.S_IFREG && st.Size == 0 {
		kind = r.next.Mode & unix.S_IFMT
	}
	if special(r.next.Mode) != special(kind) || r.next.Links != 0 && kind != unix.S_IFREG {
		return 0, r.wrong("names an entry of another type")
	}
	original := kind | r.next.Mode&permBits
	if mode := st.Mode & permBits; st.Mode&unix.S_IFMT != unix.S_IFLNK && mode != callerMode(original) && mode != hostMode(original) {
		return 0, r.wrong("names an entry that has another mode now")
	}
	st.Uid, st.Gid, st.Mode, links = r.next.UID, r.next.GID, original, r.next.Links
	r.advance()
	return links, nil
}

// finished returns an error unless the walk has met every listed entry.
func (r *attributesReader) finished() error {
	switch {
	case r == nil || errors.Is(r.err, io.EOF):
		return nil
	case r.err != nil:
		return r.err
	}
	return r.wrong("names an entry that does not exist, or is out of order")
}
