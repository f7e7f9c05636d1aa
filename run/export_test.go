package run

import (
	"io"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

// A Redactor is a redactor of secrets.
type Redactor struct{ r redactor }

// NewRedactor is newRedactor.
func NewRedactor(secrets ...string) Redactor { return Redactor{newRedactor(secrets...)} }

// Text is redactor.text.
func (r Redactor) Text(s string) string { return r.r.text(s) }

// Record is redactor.record.
func (r Redactor) Record(rec record.Record) record.Record { return r.r.record(rec) }

// In is redactor.in.
func (r Redactor) In(from io.Reader, size int64) (bool, error) { return r.r.In(from, size) }

// Output is redactor.output.
func (r Redactor) Output(o runtime.Output) string { return r.r.output(o) }

// AvailableMemory is availableMemory.
func AvailableMemory(root string) (int64, error) { return availableMemory(root) }

// PidsLeft is pidsLeft.
func PidsLeft(root string) int64 { return pidsLeft(root) }
