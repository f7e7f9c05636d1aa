package report

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/workspace/foreign"
)

// A File is part of a candidate's workspace.
type File struct {
	Path string `json:"path"`           // in the workspace; absolute for a change to the image
	Mode string `json:"mode"`           // as [fs.FileMode] formats it; "removed" if the image's entry is gone
	Size int64  `json:"size"`           // bytes
	Link string `json:"link,omitempty"` // target of a symbolic link
	Text *Text  `json:"text,omitempty"` // of a text file, if there is room for it
}

const (
	maxFiles   = 200     // listed
	maxVisited = 2000    // files and directories
	maxShown   = 8 << 10 // bytes of one file
	maxDepth   = 12      // nested directories
)

// files lists a candidate's directory, and reads text files in it, most bytes in total. It follows no links. more reports
// whether there are files that are not listed.
func files(run *os.Root, directory string, most int) (list []File, more bool, err error) {
	root, err := foreign.OpenDir(run, directory)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = root.Close() }()
	visited := 0
	err = foreign.Walk(root, maxDepth, func(e foreign.Entry) error {
		switch visited++; {
		case len(list) == maxFiles, visited > maxVisited:
			return foreign.ErrBig
		case e.Info.IsDir() && strings.Count(e.Path, "/") == maxDepth:
			more = true
			return fs.SkipDir
		case e.Info.IsDir():
			return nil
		}
		f := File{Path: cutText(e.Path, 400).Head, Mode: e.Info.Mode().String(), Size: e.Info.Size()}
		switch mode := e.Info.Mode(); {
		case mode&fs.ModeSymlink != 0:
			target, _ := e.Dir.Readlink(e.Name) // "" if it cannot be read
			f.Link = cutText(target, 400).Head
		case mode.IsRegular() && f.Size > 0 && most > 0:
			if f.Text = textIn(e, min(maxShown, most)); f.Text != nil {
				most -= f.Text.Len()
			}
		}
		list = append(list, f)
		return nil
	})
	if errors.Is(err, foreign.ErrBig) || errors.Is(err, fs.ErrPermission) {
		return list, true, nil
	}
	return list, more, err
}

// textIn returns the text of a file, at most most bytes; nil for a file that cannot be read or is not text.
func textIn(e foreign.Entry, most int) *Text {
	f, err := foreign.Open(e.Dir, e.Name, math.MaxInt64)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text, err := ends(f, most)
	if err != nil || strings.ContainsAny(text.Head, "\x00\uFFFD") {
		return nil
	}
	return &text
}

// ends reads the beginning and the end of a file, most bytes in total.
func ends(f *os.File, most int) (Text, error) {
	info, err := f.Stat()
	if err != nil {
		return Text{}, err
	}
	if info.Size() <= int64(most) {
		all, err := io.ReadAll(io.LimitReader(f, int64(most)))
		return cutText(string(all), 2*most), err
	}
	head, tail := make([]byte, most*2/3), make([]byte, most/3)
	if _, err := f.ReadAt(head, 0); err != nil {
		return Text{}, err
	}
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return Text{}, err
	}
	return textOf(string(head), string(tail), info.Size()), nil
}

// changes lists what a layer changes, and reads text files in it up to most bytes in total.
func changes(ctx context.Context, root *os.Root, name, digest string, most int) (list []File, more bool, err error) {
	f, err := layer.Open(ctx, root, name, digest)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	for e, err := range layer.Entries(ctx, f, layer.Budget{Bytes: math.MaxInt64, Entries: math.MaxInt64}) {
		if err != nil {
			return list, true, err
		}
		if len(list) == maxFiles {
			return list, true, nil
		}
		file := File{Path: cutText("/"+e.Path, 400).Head, Mode: e.Mode.String(), Size: e.Size, Link: cutText(e.Target, 400).Head}
		switch e.Kind {
		case layer.Directory: // it may be the image's, with a change below
			continue
		case layer.Removed:
			file.Mode = "removed"
		case layer.Opaque:
			file.Mode = "emptied"
		case layer.File:
			head, err := e.Peek(min(maxShown, most))
			if text := cutText(string(head), 2*maxShown); err == nil && len(head) > 0 && !strings.ContainsAny(text.Head, "\x00\uFFFD") {
				text.Cut = e.Size - int64(len(head))
				file.Text = &text
				most -= len(head)
			}
		}
		list = append(list, file)
	}
	return list, false, nil
}
