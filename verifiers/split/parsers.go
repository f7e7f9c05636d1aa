package split

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
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

func (a *artifact) manifest() any { return map[string]any{"nodes": append([]node{}, a.nodes...)} }

func (a *artifact) digest() string {
	if !a.tree {
		return digest(a.content)
	}
	text, _ := marshal(a.manifest()) // of strings and numbers
	return digest(text)
}

// parse returns the value of the artifact. The error is a failure if the artifact is at fault.
func (a *artifact) parse(parser string) (any, error) {
	most, code := maxTable, "artifact_too_large"
	switch parser {
	case "opaque-bytes/v1":
		most = maxOpaque
	case "strict-csv/v1":
		code = "csv_too_large"
	case "strict-npy-float-summary/v1":
		code = "npy_too_large"
	}
	isText := slices.Contains([]string{"utf8-text/v1", "strict-json/v1", "strict-csv/v1", "ics/v1"}, parser)
	switch {
	case a.tree != securebench.ReadsTree(parser):
		return nil, refuse("artifact_missing", "the parser does not read such an artifact")
	case len(a.content) > most:
		return nil, refuse(code, "the artifact has more than %d bytes", most)
	case isText && !utf8.Valid(a.content):
		return nil, refuse("invalid_utf8", "the artifact is not valid UTF-8")
	}
	switch parser {
	case "opaque-bytes/v1":
		return map[string]any{"byte_count": len(a.content), "sha256": fmt.Sprintf("%x", sha256.Sum256(a.content)), "bytes_base64": base64.StdEncoding.EncodeToString(a.content)}, nil
	case "utf8-text/v1":
		return string(a.content), nil
	case "strict-json/v1":
		return parseJSON(a.content)
	case "strict-csv/v1":
		return parseCSV(strings.TrimPrefix(string(a.content), "\ufeff"))
	case "ics/v1":
		return parseICS(string(a.content))
	case "strict-npy-float-summary/v1":
		return parseNPY(a.content)
	case "git-repository/v1":
		return a.parseGit()
	}
	return a.manifest(), nil // tree-manifest/v1
}

// parseJSON reads a text of at most a line, not counting spaces: parsed, it takes hundreds of bytes of memory for each
// byte.
func parseJSON(content []byte) (any, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, content); err == nil && compact.Len() > maxLine {
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
	if strings.Contains(text, "\x00") {
		return invalid("invalid_csv", "a NUL byte")
	}
	var header, row []string
	rows, cells := [][]string{}, 0
	for len(text) > 0 {
		field, rest, ok := csvField(text)
		if !ok {
			return invalid("invalid_csv", "a quote out of place")
		}
		end := rest == "" || rest[0] != ','
		blank := end && len(row) == 0 && field == "" && text[0] != '"'
		if row = append(row, field); len(row) > maxColumns {
			return invalid("csv_too_many_columns", "many columns")
		}
		if utf8.RuneCountInString(field) > maxCell {
			return invalid("csv_cell_too_large", "a long cell")
		}
		if !end {
			if text = rest[1:]; text == "" { // a last empty field
				text = "\n"
			}
			continue
		}
		text = strings.TrimPrefix(strings.TrimPrefix(rest, "\r"), "\n")
		if strings.HasPrefix(rest, "\n") {
			text = rest[1:]
		}
		cells += len(row)
		switch {
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
		case cells > maxCells:
			return invalid("csv_too_many_cells", "many cells")
		default:
			rows = append(rows, row)
		}
		row = nil
	}
	if header == nil {
		return invalid("invalid_csv", "no header")
	}
	return map[string]any{"header": header, "rows": rows}, nil
}

// csvField returns the first field, and what follows it from its comma or line end on.
func csvField(text string) (field, rest string, ok bool) {
	if text[0] != '"' {
		end := strings.IndexAny(text, ",\r\n")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], true
	}
	var b strings.Builder
	for text = text[1:]; ; {
		before, after, found := strings.Cut(text, `"`)
		if b.WriteString(before); !found {
			return "", "", false
		}
		if !strings.HasPrefix(after, `"`) {
			return b.String(), after, after == "" || strings.ContainsRune(",\r\n", rune(after[0]))
		}
		b.WriteByte('"')
		text = after[1:]
	}
}

// property is a line of a calendar.
type property struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
	Value      string            `json:"value"`
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
	type event struct {
		Properties []property `json:"properties"`
		Type       string     `json:"type"`
	}
	properties, events := []property{}, []event{}
	var stack []string
	var current *event
	for _, line := range lines {
		names, value, found := strings.Cut(string(line), ":")
		parts := strings.Split(names, ";")
		p := property{Name: strings.ToUpper(parts[0]), Parameters: map[string]string{}, Value: value}
		for _, part := range parts[1:] {
			key, of, ok := strings.Cut(part, "=")
			found = found && ok && key != ""
			p.Parameters[strings.ToUpper(key)] = of
		}
		component := strings.ToUpper(value)
		switch {
		case !found:
			return invalid("a malformed property")
		case p.Name == "BEGIN":
			if stack = append(stack, component); component == "VEVENT" {
				if current != nil {
					return invalid("an event in an event")
				}
				current = &event{[]property{}, "VEVENT"}
			}
		case p.Name == "END":
			if len(stack) == 0 || stack[len(stack)-1] != component {
				return invalid("components that overlap")
			}
			if stack = stack[:len(stack)-1]; component == "VEVENT" {
				events, current = append(events, *current), nil
			}
		case current != nil:
			current.Properties = append(current.Properties, p)
		case len(stack) == 1:
			properties = append(properties, p)
		}
	}
	if len(stack) > 0 {
		return invalid("a component without an end")
	}
	return map[string]any{"properties": properties, "events": events}, nil
}

var (
	// npyHeader matches a header as NumPy writes it, with one dimension as "2,".
	npyHeader = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]+, ?)+[0-9]*|)\),? *\} *\n$`)
	npyFloat  = regexp.MustCompile(`^([<>=]?)f(2|4|8|16)$`)
)

// parseNPY sums up an array of floats in NumPy's format.
func parseNPY(content []byte) (any, error) {
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
	return map[string]any{
		"format": "npy", "version": []int{int(content[6]), 0}, "dtype": descr, "shape": shape, "fortran_order": order == "True", "count": count, "statistics": summarize(content[end:], size, kind[1] == ">"),
	}, nil
}

// summarize returns the statistics of floats of size bytes each.
func summarize(data []byte, size int, big bool) map[string]any {
	finite, positive, representable := true, true, true
	least, most := math.Inf(1), math.Inf(-1)
	var sum, logs, weighted compensated
	for raw := range slices.Chunk(data, size) {
		if raw = slices.Clone(raw); !big {
			slices.Reverse(raw) // now big-endian
		}
		value, isFinite := decodeFloat(raw)
		finite, positive, representable = finite && isFinite, positive && isFinite && value > 0, representable && !math.IsInf(value, 0)
		least, most = min(least, value), max(most, value)
		sum.add(value)
		logs.add(math.Log(value))
		weighted.add(value * math.Log(value))
	}
	s := map[string]any{"all_finite": finite, "all_positive": positive, "minimum": nil, "maximum": nil, "sum": nil, "sum_log": nil, "sum_x_log_x": nil}
	if finite && representable {
		s["sum"] = float(sum.value())
		if len(data) > 0 {
			s["minimum"], s["maximum"] = float(least), float(most)
		}
		if positive {
			s["sum_log"], s["sum_x_log_x"] = float(logs.value()), float(weighted.value())
		}
	}
	return s
}

// decodeFloat decodes a big-endian float. The value is infinite if it is too large for a float64. Of 16 bytes, the last
// ten are an extended float of the x87: its significand has no implicit bit.
func decodeFloat(raw []byte) (value float64, finite bool) {
	var head, significand uint64
	var bits, bias int // of the exponent; what is subtracted from it for an integer significand
	switch len(raw) {
	case 2:
		head = uint64(binary.BigEndian.Uint16(raw))
		significand, head, bits, bias = head&0x3ff, head>>10, 5, 25
		if head&0x1f != 0 {
			significand |= 0x400
		}
	case 4:
		value = float64(math.Float32frombits(binary.BigEndian.Uint32(raw)))
		return value, !math.IsNaN(value) && !math.IsInf(value, 0)
	case 8:
		value = math.Float64frombits(binary.BigEndian.Uint64(raw))
		return value, !math.IsNaN(value) && !math.IsInf(value, 0)
	default:
		head, significand, bits, bias = uint64(binary.BigEndian.Uint16(raw[6:])), binary.BigEndian.Uint64(raw[8:]), 15, 16383+63
	}
	most := uint64(1)<<bits - 1
	exponent := head & most
	if value = math.Ldexp(float64(significand), int(max(exponent, 1))-bias); head>>bits == 1 {
		value = -value
	}
	return value, exponent != most
}

// compensated is a sum by Neumaier's algorithm.
type compensated struct{ total, correction float64 }

func (c *compensated) add(v float64) {
	t := c.total + v
	if math.Abs(c.total) >= math.Abs(v) {
		c.correction += c.total - t + v
	} else {
		c.correction += v - t + c.total
	}
	c.total = t
}

func (c *compensated) value() float64 { return c.total + c.correction }

// float returns a number as Python writes it; null if it is not finite.
func float(f float64) any {
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
