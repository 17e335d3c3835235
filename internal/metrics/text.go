package metrics

import (
	"io"
	"strconv"
	"strings"
)

const (
	gauge   = "gauge"
	counter = "counter"
	// flushFrom is from how many bytes on text is written out.
	flushFrom = 32 << 10
)

// text writes samples in Prometheus' text format, version 0.0.4, or as OpenMetrics. After an error of the writer, it
// writes no more.
type text struct {
	w      io.Writer
	open   bool // OpenMetrics
	buffer []byte
	broken bool
	// name is the family's; labelled says that the sample has a label already.
	name     string
	labelled bool
}

// family begins the samples of one name.
func (t *text) family(name, kind, help string) {
	t.name = name
	if t.open && kind == counter {
		if name = strings.TrimSuffix(name, "_total"); name == t.name {
			kind = "unknown" // see asUnknown
		}
	}
	t.buffer = append(t.buffer, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// begin begins a sample: its labels follow, and its end.
func (t *text) begin() {
	t.buffer, t.labelled = append(t.buffer, t.name...), false
}

func (t *text) label(name, value string) {
	separator := byte('{')
	if t.labelled {
		separator = ','
	}
	t.labelled = true
	t.buffer = append(append(append(t.buffer, separator), name...), '=', '"')
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			t.buffer = append(t.buffer, '\\', c)
		case '\n':
			t.buffer = append(t.buffer, '\\', 'n')
		default:
			t.buffer = append(t.buffer, c)
		}
	}
	t.buffer = append(t.buffer, '"')
}

func (t *text) end(value float64) {
	if t.labelled {
		t.buffer = append(t.buffer, '}')
	}
	t.buffer = append(strconv.AppendFloat(append(t.buffer, ' '), value, 'g', -1, 64), '\n')
	t.flushLarge()
}

// buffered is the buffer of a text.
type buffered struct{ *text }

// Write implements io.Writer. An error of the writer behind the buffer is not returned: the client may have gone.
func (b buffered) Write(p []byte) (int, error) {
	b.buffer = append(b.buffer, p...)
	b.flushLarge()
	return len(p), nil
}

func (t *text) flushLarge() {
	if len(t.buffer) >= flushFrom {
		t.flush()
	}
}

func (t *text) flush() {
	if !t.broken {
		_, err := t.w.Write(t.buffer)
		t.broken = err != nil
	}
	t.buffer = t.buffer[:0]
}
