package record

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/securebench/sbench/workspace/foreign"
)

// A Private is the private part of a record: what the verifier printed and left, which can hold all hidden
// tests. It belongs to the operator of the run; nothing in the record itself comes from it.
type Private struct {
	// Salt is random, so that the digest in the record does not confirm a guess of the contents.
	Salt   string         `json:"salt"`
	Stdout string         `json:"stdout,omitempty"`
	Stderr string         `json:"stderr,omitempty"`
	Logs   []PrivateLog   `json:"logs,omitempty"`   // files that the checker left
	Scores []PrivateScore `json:"scores,omitempty"` // the record has them rounded, and without their rewards
	Egress string         `json:"egress,omitempty"` // lines of the proxy's log about the verifier's sandboxes
	// Unasked are the lines of hidden assertions that tell a candidate what they expect, and files of tests that sbench cannot read.
	Unasked []string `json:"unasked,omitempty"`
}

// A PrivateLog is a file that a checker left.
type PrivateLog struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// A PrivateScore is an exact score, and the rewards that it comes from, by name.
type PrivateScore struct {
	Step    string             `json:"step,omitempty"`
	Score   float64            `json:"score"`
	Rewards map[string]float64 `json:"rewards,omitempty"`
}

// PrivateFile returns the path of the record's private part, relative to the run's directory.
func (r *Record) PrivateFile() string {
	return path.Join(PrivateDir, tryDir(r.TaskID, r.Attempt, r.Try)+".json")
}

// WritePrivate writes the private part of r below root, readable for its owner alone, and sets
// r.PrivateDigest. It replaces an earlier file.
func WritePrivate(root *os.Root, r *Record, p Private) error {
	p.Salt = rand.Text()
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	name := r.PrivateFile()
	if err := errors.Join(root.MkdirAll(path.Dir(name), 0o700), root.RemoveAll(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		r.PrivateDigest = Digest(data)
	}
	return err
}

// ReadPrivate reads the private part of r below root. The error matches [fs.ErrNotExist] if it is not
// there, and [ErrDamaged] if it is not what was written.
func ReadPrivate(root *os.Root, r *Record) (p Private, err error) {
	data, err := foreign.Read(root, r.PrivateFile(), maxLine)
	if err != nil {
		return p, err
	}
	if Digest(data) != r.PrivateDigest {
		return p, fmt.Errorf("%w: %s is not what its record says", ErrDamaged, r.PrivateFile())
	}
	return p, foreign.Decode(data, &p, maxValues)
}
