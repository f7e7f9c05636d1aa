package pack

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/workspace/foreign"
)

// A sourceFile is a file that was read, as listed in the pack's provenance.
type sourceFile struct {
	Name   string `json:"name"` // without its directory
	Bytes  int64  `json:"bytes"`
	Digest string `json:"sha256"`
}

func digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// load reads a file of the source, and decompresses it if it is gzip. It reads the file once: the digest and the text are
// of the same bytes.
func (b *Builder) load(name string) (text []byte, file sourceFile, err error) {
	at := Place{File: name}
	raw, err := foreign.ReadPath(name, b.Limits.Text)
	if err != nil {
		return nil, file, at.problem("", "%v", document.Bare(err))
	}
	file = sourceFile{Name: filepath.Base(name), Bytes: int64(len(raw)), Digest: digest(raw)}
	b.sources = append(b.sources, file)
	switch {
	case bytes.HasPrefix(raw, []byte("\x1f\x8b")):
		text, err = gunzip(at, raw, b.Limits.Text)
	case bytes.HasPrefix(raw, []byte("PAR1")):
		err = at.hinted("convert it to JSONL first, for instance with pandas", "a Parquet file is not supported")
	case bytes.HasPrefix(raw, []byte("PK\x03\x04")):
		err = at.hinted("unpack it first", "a zip archive is not supported")
	default:
		text = raw
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), file, err
}

// gunzip decompresses at most limit bytes. A problem's line is where the decompressed data
// end.
func gunzip(at Place, raw []byte, limit int64) ([]byte, error) {
	var text []byte
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(z, limit+1))
	}
	at.Line = 1 + bytes.Count(text, []byte("\n"))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at.problem("", "truncated gzip data")
	case err != nil:
		return nil, at.problem("", "damaged gzip data: %v", err)
	case int64(len(text)) > limit:
		return nil, at.problem("", "decompressed data have more than %d bytes", limit)
	}
	return text, nil
}

// A record describes one task: a JSON object or a line of a CSV file.
type record struct {
	place    Place
	value    document.Value // of JSON
	fields   []string       // of CSV
	raw      []byte
	file     sourceFile
	problems compiler.Problems
}

// A rowOf makes a row of a record. If it has recorded problems, only the id of the row counts: the problems are reported
// if the id is selected. A row without an id is left out. An error ends the import.
type rowOf func(*record) (Row, error)

// each returns a Format.Read that adds the rows of the lines of a JSONL file, or of the items of a JSON array.
func each(row rowOf) func(context.Context, *Builder) error {
	return func(ctx context.Context, b *Builder) error { return records(ctx, b, row) }
}

func records(ctx context.Context, b *Builder, row rowOf) error {
	name := b.Source
	text, file, err := b.load(name)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		var doc document.Document
		if problems := doc.ParseJSON(text, 1); len(problems) > 0 {
			return problems.In(name)
		}
		for i, v := range doc.Root().Items() {
			at := Place{File: name, Line: v.Line(), Path: fmt.Sprintf("$[%d]", i)}
			if err := object(ctx, b, &record{place: at, value: v, file: file}, row); err != nil {
				return err
			}
		}
		return nil
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		r := &record{place: Place{File: name, Line: n}, raw: line, file: file}
		if err := object(ctx, b, r, row); err != nil {
			return err
		}
	}
	return nil
}

// object adds the row of a record, parsing its JSON text unless that was done.
func object(ctx context.Context, b *Builder, r *record, row rowOf) error {
	if err := b.Count(ctx, r.place); err != nil {
		return err
	}
	if r.value.Kind() != 0 {
		r.raw = r.value.Raw()
	} else {
		if len(r.raw) > b.Limits.Line {
			return b.Reject(r.place.problem("", "line is longer than %d bytes", b.Limits.Line)...)
		}
		var doc document.Document
		if problems := doc.ParseJSON(r.raw, r.place.Line); len(problems) > 0 {
			return b.Reject(problems.In(r.place.File)...)
		}
		r.value = doc.Root()
	}
	if r.value.Kind() != document.Object {
		return b.Reject(r.place.problem("", "expected an object, found %s", r.value.Kind())...)
	}
	return addRecord(ctx, b, r, row)
}

// addRecord adds the row of a record, or rejects the record if there are problems.
func addRecord(ctx context.Context, b *Builder, r *record, to rowOf) error {
	row, err := to(r)
	named := strings.TrimSpace(row.ID) != ""
	switch {
	case err != nil:
		return err
	case named && !b.Wanted(r.place, row.ID):
		return nil
	case len(r.problems) > 0:
		return b.Reject(r.problems...)
	case !named:
		return nil
	}
	if row.Metadata == nil {
		row.Metadata = map[string]any{}
	}
	row.Metadata["source"] = r.sourceOf(b.Format.Name)
	return b.Add(ctx, r.place, row)
}

// text returns a string that must be present and not blank.
func (r *record) text(key string) string {
	v := r.value.Get(key)
	switch {
	case v.Kind() == 0:
		r.wrong("$."+key, "key %q is missing", key)
	case v.Kind() != document.String:
		r.wrong("$."+key, "expected a string, found %s", v.Kind())
	case strings.TrimSpace(v.Text()) == "":
		r.wrong("$."+key, "string is blank")
	}
	return v.Text()
}

// optional returns a string that may be missing, null or blank.
func (r *record) optional(key string) string {
	v := r.value.Get(key)
	if v.Given() && v.Kind() != document.String {
		r.wrong("$."+key, "expected a string, found %s", v.Kind())
	}
	return v.Text()
}

func (r *record) wrong(path, format string, args ...any) {
	r.problems = append(r.problems, r.place.problem(path, format, args...)...)
}

// copyKeys copies the values of keys that are neither absent nor null.
func copyKeys(to map[string]any, from document.Value, keys ...string) {
	for _, key := range keys {
		if v := from.Get(key); v.Given() {
			to[key] = v.Any()
		}
	}
}

// sourceOf returns metadata that says where a row came from.
func (r *record) sourceOf(format string) map[string]any {
	m := map[string]any{"format": format, "file": r.file.Name, "file_sha256": r.file.Digest, "sha256": digest(r.raw)}
	if r.place.Path != "" {
		m["path"] = r.place.Path
	} else {
		m["line"] = r.place.Line
	}
	return m
}

// table adds the rows of the records of a CSV file. It keeps line breaks within quoted cells, as line
// feeds.
func table(ctx context.Context, b *Builder, name string, row rowOf) error {
	text, file, err := b.load(name)
	if err != nil {
		return err
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.FieldsPerRecord = -1
	for {
		start := in.InputOffset()
		fields, err := in.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil { // the rest cannot be read reliably
			return Place{File: name}.problem("", "invalid CSV: %v", err)
		}
		line, _ := in.FieldPos(0)
		r := &record{place: Place{File: name, Line: line}, fields: fields, raw: text[start:in.InputOffset()], file: file}
		if err := b.Count(ctx, r.place); err != nil {
			return err
		}
		switch {
		case len(r.raw) > b.Limits.Line:
			err = b.Reject(r.place.problem("", "record is longer than %d bytes", b.Limits.Line)...)
		case !utf8.Valid(r.raw):
			err = b.Reject(r.place.problem("", "invalid UTF-8")...)
		default:
			err = addRecord(ctx, b, r, row)
		}
		if err != nil {
			return err
		}
	}
}
