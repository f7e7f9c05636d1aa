package split

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler/securebench"
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
func (a *artifact) add(rel string, info fs.FileInfo) error {
	at := path.Join(a.name, rel)
	n := node{Path: rel, Mode: int(permissions(info))}
	switch {
	case info.IsDir():
		if n.Kind = "directory"; rel == "." {
			return nil
		}
	case info.Mode()&fs.ModeSymlink != 0:
		n.Kind, n.Mode = "symlink", 0
		n.Target, _ = a.root.Readlink(at)
	default:
		f, err := a.root.Open(at)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		a.size += info.Size()
		if !a.tree {
			a.content, err = io.ReadAll(io.LimitReader(f, info.Size()))
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		n.Kind, n.Size, n.Blob = securebench.RegularFile, new(info.Size()), fmt.Sprintf("sha256:%x", sum.Sum(nil))
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

// A parser makes a value of an artifact. Its error is a failure if the artifact is at fault.
type parser struct {
	text     bool   // it reads a file in UTF-8
	most     int    // bytes of a file
	tooLarge string // the code for a file of more; "" means tooLarge
	parse    func(a *artifact) (any, error)
}

// parserOf returns the parser of this name, which is one of [securebench.Parsers].
func parserOf(name string) parser {
	content := func(parse func(text string) (any, error)) func(*artifact) (any, error) {
		return func(a *artifact) (any, error) { return parse(string(a.content)) }
	}
	return map[string]parser{
		"opaque-bytes/v1":             {most: maxOpaque, parse: (*artifact).opaque},
		"utf8-text/v1":                {text: true, most: maxTable, parse: content(func(text string) (any, error) { return text, nil })},
		"strict-json/v1":              {text: true, most: maxTable, parse: content(parseJSON)},
		"strict-csv/v1":               {text: true, most: maxTable, tooLarge: "csv_too_large", parse: content(parseCSV)},
		"ics/v1":                      {text: true, most: maxTable, parse: content(parseICS)},
		"strict-npy-float-summary/v1": {most: maxTable, tooLarge: "npy_too_large", parse: content(parseNPY)},
		"tree-manifest/v1":            {parse: func(a *artifact) (any, error) { return a.manifest(), nil }},
		"git-repository/v1":           {parse: (*artifact).parseGit},
	}[strings.TrimPrefix(name, "securebench.")]
}

// value returns what the parser of this name makes of the artifact.
func (a *artifact) value(name string) (any, error) {
	p := parserOf(name)
	switch {
	case a.tree != securebench.ReadsTree(name):
		return nil, refuse("artifact_missing", "the parser does not read such an artifact")
	case !a.tree && len(a.content) > p.most:
		return nil, refuse(cmp.Or(p.tooLarge, tooLarge), "the artifact has more than %d bytes", p.most)
	case p.text && !utf8.Valid(a.content):
		return nil, refuse("invalid_utf8", "the artifact is not valid UTF-8")
	}
	return p.parse(a)
}

func (a *artifact) opaque() (any, error) {
	return object{"byte_count": len(a.content), "sha256": fmt.Sprintf("%x", sha256.Sum256(a.content)), "bytes_base64": base64.StdEncoding.EncodeToString(a.content)}, nil
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
	text = strings.TrimPrefix(text, "\ufeff")
	if strings.Contains(text, "\x00") {
		return invalid("invalid_csv", "a NUL byte")
	}
	var header, row []string
	rows, cells := [][]string{}, 0
	for text != "" || row != nil { // after a comma there is a field, even at the end
		field, rest, ok := csvField(text)
		if !ok {
			return invalid("invalid_csv", "a quote out of place")
		}
		blank := row == nil && rest == text
		row, text = append(row, field), strings.TrimPrefix(rest, ",")
		switch {
		case len(row) > maxColumns:
			return invalid("csv_too_many_columns", "many columns")
		case utf8.RuneCountInString(field) > maxCell:
			return invalid("csv_cell_too_large", "a long cell")
		case text != rest: // a comma
			continue
		}
		text = strings.TrimPrefix(strings.TrimPrefix(rest, "\r"), "\n")
		cells += len(row)
		switch {
		case cells > maxCells: // lines without any count, too
			return invalid("csv_too_many_cells", "many cells")
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
	content := []byte(text)
	invalid := func() (any, error) { return nil, refuse("invalid_npy", "the artifact is no NPY array of floats") }
	if len(content) < 12 || !bytes.HasPrefix(content, []byte("\x93NUMPY")) || content[7] != 0 || content[6] < 1 || content[6] > 3 {
		return invalid()
	}
	begin, length := 10, int(binary.LittleEndian.Uint16(content[8:]))
	if content[6] > 1 {
		begin, length = 12, int(binary.LittleEndian.Uint32(content[8:]))
	}
	end := begin + length
	if length <= 0 || length > maxArrayHeader || end > len(content) || end%64 != 0 || content[end-1] != '\n' {
		return invalid()
	}
	fields := npyHeader.FindStringSubmatch(string(content[begin:end]))
	if fields == nil {
		return invalid()
	}
	descr, order, dims := fields[1], fields[2], strings.TrimSuffix(strings.TrimSpace(fields[3]), ",")
	kind := npyFloat.FindStringSubmatch(descr)
	if kind == nil {
		return nil, refuse("unsupported_npy_dtype", "the array has no floats")
	}
	shape, count := []int{}, 1
	for part := range strings.SplitSeq(dims, ",") {
		if dims == "" {
			break
		}
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 || len(shape) == maxDimensions {
			return invalid()
		}
		if shape, count = append(shape, n), count*min(n, maxArray+1); count > maxArray {
			return nil, refuse("npy_too_many_elements", "the array has more than %d elements", maxArray)
		}
	}
	size, _ := strconv.Atoi(kind[2])
	if len(content)-end != count*size {
		return invalid()
	}
	return object{
		"format": "npy", "version": []int{int(content[6]), 0}, "dtype": descr, "shape": shape, "fortran_order": order == "True", "count": count, "statistics": summarize(content[end:], size, kind[1] == ">"),
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
	if representable {
		s["sum"] = float(sum.Float64())
	}
	if representable && len(data) > 0 {
		s["minimum"], s["maximum"] = float(least, big.Exact), float(most, big.Exact)
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
