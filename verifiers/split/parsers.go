package split

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/workspace"
)

// Bounds of the parsers.
const (
	maxOpaque      = 4 << 20
	maxTable       = 16 << 20 // bytes of a text and of an array
	maxColumns     = 256
	maxRows        = 100_000 // of a CSV file, and lines of a calendar
	maxCells       = 1_000_000
	maxCell        = 64 << 10 // characters
	maxCalendar    = 8192     // bytes of a line
	maxArray       = 1_000_000
	maxArrayHeader = 10_000
	maxDimensions  = 8
)

// artifact is a file or tree while it is parsed. Parsers never execute it.
type artifact struct {
	root    *os.Root
	name    string
	tree    bool
	content []byte // of a file
	nodes   []node // of a tree
	size    int64
}

// node is a file, directory or link of a tree.
type node struct {
	Blob   string `json:"blob,omitempty"`
	Kind   string `json:"kind"`
	Mode   int    `json:"mode,omitempty"`
	Path   string `json:"path"`
	Size   *int64 `json:"size,omitempty"`
	Target string `json:"target,omitempty"`
}

// add notes what visit found.
func (a *artifact) add(e entry) (err error) {
	n := node{Path: e.rel, Mode: int(e.permissions()), Target: e.target}
	switch {
	case e.rel == "." && a.tree:
		return nil
	case e.IsDir():
		n.Kind = "directory"
	case e.target != "":
		n.Kind = "symlink"
	case !a.tree:
		a.size = e.Size()
		a.content, err = io.ReadAll(e.content)
		return err
	default:
		sum := sha256.New()
		if _, err := io.Copy(sum, e.content); err != nil {
			return err
		}
		a.size += e.Size()
		n.Kind, n.Size, n.Blob = securebench.RegularFile, new(e.Size()), workspace.DigestOf(sum)
	}
	a.nodes = append(a.nodes, n)
	return nil
}

func (a *artifact) manifest() any { return object{"nodes": append([]node{}, a.nodes...)} }

func (a *artifact) digest() string {
	if !a.tree {
		return digest(a.content)
	}
	text, _ := marshal(a.manifest()) // of strings and numbers
	return digest(text)
}

// value returns what a parser makes of the artifact, which it never executes. The error is a failure if the artifact is
// at fault.
func (a *artifact) value(parser string) (any, error) {
	name := strings.TrimPrefix(parser, "securebench.")
	file := map[string]struct {
		utf8  bool
		most  int    // bytes
		code  string // for more bytes
		parse func(content string) (any, error)
	}{
		"opaque-bytes/v1":             {false, maxOpaque, tooLarge, parseBytes},
		"utf8-text/v1":                {true, maxTable, tooLarge, func(content string) (any, error) { return content, nil }},
		"strict-json/v1":              {true, maxTable, tooLarge, parseJSON},
		"strict-csv/v1":               {true, maxTable, "csv_too_large", parseCSV},
		"ics/v1":                      {true, maxTable, tooLarge, parseICS},
		"strict-npy-float-summary/v1": {false, maxTable, "npy_too_large", parseNPY},
	}[name]
	switch {
	case a.tree && name == "tree-manifest/v1":
		return a.manifest(), nil
	case a.tree && name == "git-repository/v1":
		return a.parseGit()
	case a.tree || file.parse == nil:
		return nil, refuse("artifact_missing", "the parser does not read such an artifact")
	case len(a.content) > file.most:
		return nil, refuse(file.code, "the artifact has more than %d bytes", file.most)
	case file.utf8 && !utf8.Valid(a.content):
		return nil, refuse("invalid_utf8", "the artifact is not valid UTF-8")
	}
	return file.parse(string(a.content))
}

func parseBytes(content string) (any, error) {
	return object{"byte_count": len(content), "sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(content))), "bytes_base64": base64.StdEncoding.EncodeToString([]byte(content))}, nil
}

// parseJSON reads a text of at most a line, not counting spaces: parsed, it takes hundreds of bytes of memory for each
// byte.
func parseJSON(text string) (any, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err == nil && compact.Len() > maxLine {
		return nil, tooMuchEvidence()
	}
	v, err := parse(compact.Bytes())
	if err != nil {
		return nil, refuse("invalid_json", "the artifact is %v", err)
	}
	return json.RawMessage(v.AppendSorted(nil)), nil
}

// parseCSV reads CSV as Python's csv module does, in its strict mode.
func parseCSV(text string) (any, error) {
	invalid := func(code, what string) (any, error) { return nil, refuse(code, "the artifact is no CSV: %s", what) }
	if text = strings.TrimPrefix(text, "\ufeff"); strings.Contains(text, "\x00") {
		return invalid("invalid_csv", "a NUL byte")
	}
	var header, row []string
	rows, cells := [][]string{}, 0
	for text != "" || row != nil { // after a comma there is a field, even at the end
		field, rest, ok := csvField(text)
		blank, comma := row == nil && rest == text, strings.HasPrefix(rest, ",")
		row = append(row, field)
		text = strings.TrimPrefix(rest, ",")
		if !comma {
			text = strings.TrimPrefix(strings.TrimPrefix(rest, "\r"), "\n")
			cells += len(row)
		}
		switch {
		case !ok:
			return invalid("invalid_csv", "a quote out of place")
		case len(row) > maxColumns:
			return invalid("csv_too_many_columns", "many columns")
		case utf8.RuneCountInString(field) > maxCell:
			return invalid("csv_cell_too_large", "a long cell")
		case cells > maxCells: // lines without any count, too
			return invalid("csv_too_many_cells", "many cells")
		case comma:
			continue
		case blank:
		case header == nil:
			header = row
			if sorted := slices.Sorted(slices.Values(header)); sorted[0] == "" || len(slices.Compact(sorted)) != len(header) {
				return invalid("invalid_csv_header", "empty or equal names in the header")
			}
		case len(row) != len(header):
			return invalid("invalid_csv_shape", "a row that is not as wide as the header")
		case len(rows) == maxRows:
			return invalid("csv_too_many_rows", "many rows")
		default:
			rows = append(rows, row)
		}
		row = nil
	}
	if header == nil {
		return invalid("invalid_csv", "no header")
	}
	return object{"header": header, "rows": rows}, nil
}

// csvField returns the first field, and what follows it from its comma or line end on.
func csvField(text string) (field, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, ",\r\n")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], true
	}
	var b strings.Builder
	for rest = text; strings.HasPrefix(rest, `"`); { // in quotes, two quotes are one
		if rest != text {
			b.WriteByte('"')
		}
		before, after, found := strings.Cut(rest[1:], `"`)
		if !found {
			return "", "", false
		}
		b.WriteString(before)
		rest = after
	}
	return b.String(), rest, rest == "" || strings.ContainsRune(",\r\n", rune(rest[0]))
}

func parseICS(text string) (any, error) {
	invalid := func(what string) (any, error) {
		return nil, refuse("invalid_ics", "the artifact is no calendar: %s", what)
	}
	var lines [][]byte
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") {
		folded := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case len(line) > maxCalendar || len(lines) > maxRows || strings.Contains(line, "\x00") || folded && lines == nil:
			return invalid("too many lines, or a line that is too long, has a NUL byte or continues none")
		case folded:
			lines[len(lines)-1] = append(lines[len(lines)-1], line[1:]...)
		case line != "":
			lines = append(lines, []byte(line))
		}
	}
	if len(lines) == 0 || !strings.EqualFold(string(lines[0]), "BEGIN:VCALENDAR") || !strings.EqualFold(string(lines[len(lines)-1]), "END:VCALENDAR") {
		return invalid("it does not begin and end with VCALENDAR")
	}
	properties, events := []object{}, []object{}
	var stack []string
	var event []object // the properties of the event around the line; nil outside of events
	named := 0         // bytes of names and parameters, which take many times as much memory
	for _, line := range lines {
		names, value, found := strings.Cut(string(line), ":")
		if named += len(names); named > maxLine {
			return nil, tooMuchEvidence()
		}
		parts := strings.Split(names, ";")
		name, component, parameters := strings.ToUpper(parts[0]), strings.ToUpper(value), map[string]string{}
		for _, part := range parts[1:] {
			key, of, ok := strings.Cut(part, "=")
			found = found && ok && key != ""
			parameters[strings.ToUpper(key)] = of
		}
		property := object{"name": name, "parameters": parameters, "value": value}
		switch {
		case !found:
			return invalid("a malformed property")
		case name == "BEGIN":
			if stack = append(stack, component); component == "VEVENT" {
				if event != nil {
					return invalid("an event in an event")
				}
				event = []object{}
			}
		case name == "END":
			if len(stack) == 0 || stack[len(stack)-1] != component {
				return invalid("components that overlap")
			}
			if stack = stack[:len(stack)-1]; component == "VEVENT" {
				events, event = append(events, object{"properties": event, "type": "VEVENT"}), nil
			}
		case event != nil:
			event = append(event, property)
		case len(stack) == 1:
			properties = append(properties, property)
		}
	}
	if len(stack) > 0 {
		return invalid("a component without an end")
	}
	return object{"properties": properties, "events": events}, nil
}

var (
	// npyHeader matches a header as NumPy writes it, with one dimension as "2,".
	npyHeader = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]+, ?)+[0-9]*|)\),? *\} *\n$`)
	npyFloat  = regexp.MustCompile(`^([<>=]?)f(2|4|8|16)$`)
)

// parseNPY sums up an array of floats in NumPy's format.
func parseNPY(text string) (any, error) {
	content, invalid := []byte(text), refuse("invalid_npy", "the artifact is no NPY array of floats")
	if len(content) < 12 || !strings.HasPrefix(text, "\x93NUMPY") || content[6] < 1 || content[6] > 3 || content[7] != 0 {
		return nil, invalid
	}
	begin, length := 10, int(binary.LittleEndian.Uint16(content[8:]))
	if content[6] > 1 {
		begin, length = 12, int(binary.LittleEndian.Uint32(content[8:]))
	}
	end := begin + length
	if length > maxArrayHeader || end > len(content) || end%64 != 0 {
		return nil, invalid
	}
	fields := npyHeader.FindStringSubmatch(text[begin:end])
	if fields == nil {
		return nil, invalid
	}
	kind := npyFloat.FindStringSubmatch(fields[1])
	if kind == nil {
		return nil, refuse("unsupported_npy_dtype", "the array has no floats")
	}
	shape, count := []int{}, 1
	for _, part := range strings.FieldsFunc(fields[3], func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(part)
		if err != nil || len(shape) == maxDimensions {
			return nil, invalid
		}
		if shape, count = append(shape, n), count*min(n, maxArray+1); count > maxArray {
			return nil, refuse("npy_too_many_elements", "the array has more than %d elements", maxArray)
		}
	}
	size, _ := strconv.Atoi(kind[2])
	if len(content)-end != count*size {
		return nil, invalid
	}
	return object{
		"format": "npy", "version": []int{int(content[6]), 0}, "dtype": fields[1], "shape": shape, "fortran_order": fields[2] == "True", "count": count, "statistics": summarize(content[end:], size, kind[1] == ">"),
	}, nil
}

// sumBits is a precision in which sums of floats are exact.
const sumBits = 2200

// summarize returns the statistics of floats of size bytes each.
func summarize(data []byte, size int, bigEndian bool) object {
	finite, positive, representable := true, true, true
	least, most := math.Inf(1), math.Inf(-1)
	sum, logs, weighted := new(big.Float).SetPrec(sumBits), new(big.Float).SetPrec(sumBits), new(big.Float).SetPrec(sumBits)
	for raw := range slices.Chunk(data, size) {
		if raw = slices.Clone(raw); !bigEndian {
			slices.Reverse(raw)
		}
		value, isFinite := decodeFloat(raw)
		finite, positive, representable = finite && isFinite, positive && isFinite && value > 0, representable && isFinite && !math.IsInf(value, 0)
		if !representable {
			continue
		}
		least, most = min(least, value), max(most, value)
		sum.Add(sum, big.NewFloat(value))
		if positive {
			logs.Add(logs, big.NewFloat(math.Log(value)))
			weighted.Add(weighted, big.NewFloat(value*math.Log(value)))
		}
	}
	s := object{"all_finite": finite, "all_positive": positive, "minimum": nil, "maximum": nil, "sum": nil, "sum_log": nil, "sum_x_log_x": nil}
	if representable { // without any, the least and the most are infinite
		s["minimum"], s["maximum"], s["sum"] = float(least, big.Exact), float(most, big.Exact), float(sum.Float64())
	}
	if representable && positive {
		s["sum_log"], s["sum_x_log_x"] = float(logs.Float64()), float(weighted.Float64())
	}
	return s
}

// decodeFloat decodes a big-endian float. The value is infinite if it is too large for a float64.
func decodeFloat(raw []byte) (value float64, finite bool) {
	switch len(raw) {
	case 2: // the same bits in a float32 are 112 powers of two smaller
		half := uint32(binary.BigEndian.Uint16(raw))
		value = float64(math.Float32frombits(half&0x8000<<16|half&0x7fff<<13)) * 0x1p112
		return value, half&0x7c00 != 0x7c00
	case 4:
		value = float64(math.Float32frombits(binary.BigEndian.Uint32(raw)))
	case 8:
		value = math.Float64frombits(binary.BigEndian.Uint64(raw))
	default: // the last ten are an extended float of the x87: its significand has no implicit bit
		exponent := int(binary.BigEndian.Uint16(raw[6:]))
		value = math.Ldexp(float64(binary.BigEndian.Uint64(raw[8:])), max(exponent&0x7fff, 1)-16383-63)
		if exponent > 0x7fff {
			value = -value
		}
		return value, exponent&0x7fff != 0x7fff
	}
	return value, !math.IsNaN(value) && !math.IsInf(value, 0)
}

// float returns a number as Python writes it; null if it is not finite.
func float(f float64, _ big.Accuracy) any {
	switch size := math.Abs(f); {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil
	case size != 0 && (size < 1e-4 || size >= 1e16):
		return json.Number(strconv.FormatFloat(f, 'e', -1, 64))
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return json.Number(text)
}
