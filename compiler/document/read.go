package document

import (
	"errors"
	"io/fs"

	"github.com/securebench/sbench/workspace/foreign"
)

// maxFile bounds a file in bytes.
const maxFile = 4 << 20

// ReadYAML reads a file, such as a manifest. The document is nil if the file is unreadable.
func ReadYAML(name string) (*Document, Problems) {
	text, err := foreign.ReadPath(name, maxFile)
	if err != nil {
		return nil, ProblemsOf(name, err)
	}
	doc := new(Document)
	return doc, doc.ParseYAML(text).In(name)
}

// ProblemsOf returns the problems that an error about a file holds.
func ProblemsOf(file string, err error) (problems Problems) {
	if errors.As(err, &problems) {
		return problems
	}
	return Problems{{File: file, Message: Bare(err).Error()}}
}

// Bare removes the operation and the path from a file error, for messages that name the file.
func Bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
