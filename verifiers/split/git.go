package split

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"crypto/sha1" // the names of git's objects
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bounds of a repository that is an artifact.
const (
	maxObjects      = 512
	maxObject       = 256 << 10 // bytes
	maxObjectsBytes = 1 << 20
)

// gitObject is an object of a repository.
type gitObject struct {
	Content   string `json:"content"` // as git cat-file -p shows it
	Kind      string `json:"kind"`
	OID       string `json:"oid"`
	Reachable bool   `json:"reachable"`
	Size      int    `json:"size"`
	data      []byte
	refers    []string // to objects of these names
}

// gitObjects reads the objects of a repository, loose and packed, without running git.
type gitObjects struct {
	all   map[string]*gitObject
	bytes int
}

var (
	errRepository = refuse("invalid_git_repository", "the repository cannot be read")
	objectName    = regexp.MustCompile(`^objects/([0-9a-f]{2})/([0-9a-f]{38})$`)
	objectWord    = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	// referLine matches how a commit or a tag refers to another object.
	referLine = regexp.MustCompile(`(?m)^(?:tree|parent|object) ([0-9a-f]{40})$`)
)

// parseGit lists the objects of a repository and the files of its work tree.
func (a *artifact) parseGit() (any, error) {
	g, worktree, roots, head := gitObjects{all: map[string]*gitObject{}}, []object{}, "", false
	for _, n := range a.nodes {
		name, inside := strings.CutPrefix(n.Path, ".git/")
		loose := objectName.FindStringSubmatch(name)
		pack := strings.HasPrefix(name, "objects/") && strings.HasSuffix(name, ".pack")
		root := name == "HEAD" || name == "packed-refs" || strings.HasPrefix(name, "refs/")
		switch {
		case n.Kind == "symlink":
			return nil, refuse("unsafe_git_repository", "the repository has symbolic links")
		case n.Kind == "directory":
		case inside && slices.Contains([]string{"objects/info/alternates", "objects/info/http-alternates", "info/grafts", "commondir"}, name):
			return nil, refuse("unsafe_git_repository", "the repository takes objects from elsewhere")
		case inside && (loose != nil || pack || root):
			text, err := a.root.ReadFile(path.Join(a.name, n.Path))
			switch {
			case err != nil:
			case loose != nil:
				err = g.loose(loose[1]+loose[2], text)
			case pack:
				err = g.pack(text)
			default:
				roots, head = roots+string(text)+"\n", head || name == "HEAD"
			}
			if err != nil {
				return nil, err
			}
		case !inside && !strings.HasPrefix(name, ".") && !strings.Contains(name, "/."):
			worktree = append(worktree, object{"path": n.Path, "size": n.Size, "blob": n.Blob})
		}
	}
	if !head {
		return nil, errRepository
	}
	for _, oid := range objectWord.FindAllString(roots, -1) {
		g.reach(oid)
	}
	objects := []*gitObject{}
	for _, oid := range slices.Sorted(maps.Keys(g.all)) {
		objects = append(objects, g.all[oid])
	}
	return object{"format": "git-repository", "objects": objects, "worktree": worktree}, nil
}

// inflate decompresses one stream of at most maxObject bytes. r must be an io.ByteReader, so that nothing after
// the stream is read.
func inflate(r io.Reader) ([]byte, error) {
	var data []byte
	z, err := zlib.NewReader(r)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(z, maxObject+64))
	}
	switch {
	case err != nil:
		return nil, errRepository
	case len(data) == maxObject+64:
		return nil, refuse("git_object_too_large", "an object of the repository has more than %d bytes", maxObject)
	}
	return data, nil
}

func (g *gitObjects) loose(oid string, text []byte) error {
	data, err := inflate(bytes.NewReader(text))
	if err != nil {
		return err
	}
	head, body, found := bytes.Cut(data, []byte{0})
	kind, size, _ := strings.Cut(string(head), " ")
	if !found || size != fmt.Sprint(len(body)) {
		return errRepository
	}
	if o, err := g.add(kind, body); err != nil || o.OID != oid {
		return cmp.Or(err, errRepository)
	}
	return nil
}

// add adds an object.
func (g *gitObjects) add(kind string, data []byte) (*gitObject, error) {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(data)), data...))
	oid := hex.EncodeToString(sum[:])
	switch g.bytes += len(data); {
	case !slices.Contains([]string{"blob", "commit", "tag", "tree"}, kind):
		return nil, errRepository
	case len(data) > maxObject:
		return nil, refuse("git_object_too_large", "an object of the repository has more than %d bytes", maxObject)
	case g.bytes > maxObjectsBytes || len(g.all) == maxObjects:
		return nil, refuse("git_repository_too_large", "the repository has more than %d objects or %d bytes in them", maxObjects, maxObjectsBytes)
	}
	o := &gitObject{OID: oid, Kind: kind, Size: len(data), Content: strings.ToValidUTF8(string(data), "\ufffd"), data: data}
	switch kind {
	case "tree":
		o.listTree()
	case "commit", "tag":
		head, _, _ := strings.Cut(string(data), "\n\n")
		for _, m := range referLine.FindAllStringSubmatch(head, -1) {
			o.refers = append(o.refers, m[1])
		}
	}
	g.all[oid] = o
	return o, nil
}

// listTree lists the entries of a tree, as far as it is well-formed.
func (o *gitObject) listTree() {
	var list strings.Builder
	for data := o.data; ; {
		head, rest, found := bytes.Cut(data, []byte{0})
		mode, name, ok := strings.Cut(string(head), " ")
		if !found || !ok || len(rest) < sha1.Size {
			o.Content = list.String()
			return
		}
		kind := cmp.Or(map[string]string{"40000": "tree", "160000": "commit"}[mode], "blob")
		oid := hex.EncodeToString(rest[:sha1.Size])
		_, _ = fmt.Fprintf(&list, "%06s %s %s\t%s\n", mode, kind, oid, strings.ToValidUTF8(name, "\ufffd"))
		o.refers, data = append(o.refers, oid), rest[sha1.Size:]
	}
}

// reach marks what can be reached from an object.
func (g *gitObjects) reach(oid string) {
	if o := g.all[oid]; o != nil && !o.Reachable {
		o.Reachable = true
		for _, name := range o.refers {
			g.reach(name)
		}
	}
}

// pack adds the objects of a pack file (gitformat-pack(5)). A delta's base is in the same file, before the delta.
func (g *gitObjects) pack(text []byte) error {
	if len(text) < 12 || string(text[:4]) != "PACK" || binary.BigEndian.Uint32(text[8:]) > maxObjects {
		return errRepository
	}
	r := bytes.NewReader(text[12:])
	at := map[int64]*gitObject{} // by where they begin
	for range binary.BigEndian.Uint32(text[8:]) {
		begin := r.Size() - int64(r.Len())
		b, err := r.ReadByte()
		kind := b >> 4 & 7
		for more := b; err == nil && more&0x80 != 0; { // the size, which the stream has, too
			more, err = r.ReadByte()
		}
		base := &gitObject{Kind: []string{"", "commit", "tree", "blob", "tag", "", "", ""}[kind]}
		switch kind {
		case 6:
			offset := int64(-1)
			for more := byte(0x80); more&0x80 != 0 && err == nil && offset < 1<<40; {
				more, err = r.ReadByte()
				offset = (offset+1)<<7 | int64(more&0x7f)
			}
			base = at[begin-offset]
		case 7:
			var name [sha1.Size]byte
			_, err = io.ReadFull(r, name[:])
			base = g.all[hex.EncodeToString(name[:])]
		}
		if err != nil || base == nil || base.Kind == "" {
			return errRepository
		}
		data, err := inflate(r)
		if err == nil && kind >= 6 {
			data, err = undelta(base.data, data)
		}
		if err == nil {
			at[begin], err = g.add(base.Kind, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// undelta applies a delta: instructions that copy from the base or add what follows them.
func undelta(base, delta []byte) (out []byte, err error) {
	r := bytes.NewReader(delta)
	from, err1 := binary.ReadUvarint(r)
	to, err2 := binary.ReadUvarint(r)
	if err1 != nil || err2 != nil || from != uint64(len(base)) || to > maxObject {
		return nil, errRepository
	}
	for r.Len() > 0 && len(out) <= int(to) {
		op, _ := r.ReadByte()
		part := make([]byte, op&0x7f)
		if op&0x80 == 0 {
			_, err = io.ReadFull(r, part)
		} else {
			var n [8]byte
			for i := range 7 { // four bytes of the offset, three of the size
				if op>>i&1 == 1 && err == nil {
					n[i], err = r.ReadByte()
				}
			}
			offset, size := uint64(binary.LittleEndian.Uint32(n[:4])), cmp.Or(uint64(binary.LittleEndian.Uint32(n[4:])), 0x10000)
			if offset+size > uint64(len(base)) {
				return nil, errRepository
			}
			part = base[offset : offset+size]
		}
		if err != nil || op == 0 {
			return nil, errRepository
		}
		out = append(out, part...)
	}
	if len(out) != int(to) {
		return nil, errRepository
	}
	return out, nil
}
