package bench

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is the result of a run. Its JSON form is for programs.
type Report struct {
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes"`
	// CPUs is how many this machine has.
	CPUs int `json:"cpus"`
	// Certificates of each scenario, and how many were under way at once.
	Certificates int `json:"certificates"`
	Concurrency  int `json:"concurrency"`
	// Scenarios that were finished.
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is the result of one scenario.
type Scenario struct {
	// Name is that of the option, Title is for people.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Controller is the program of the other controller, which was measured; empty for ours. Failure is why it could not
	// be.
	Controller string `json:"controller,omitempty"`
	Failure    string `json:"failure,omitempty"`
	// Rows are what was measured. "Each" means: for one certificate.
	Rows []Row `json:"rows"`
}

// add adds rows, but leaves out a row whose value is a division by zero. It is one where a process needed less CPU time
// than the kernel counts.
func (s *Scenario) add(rows ...Row) {
	for _, row := range rows {
		if !math.IsNaN(row.Value) && !math.IsInf(row.Value, 0) {
			s.Rows = append(s.Rows, row)
		}
	}
}

// Row is one number that was measured.
type Row struct {
	// Name says what the number is about. Of several numbers about the same, which are printed in one line, Part says
	// which this is.
	Name string `json:"name"`
	Part string `json:"part,omitempty"`
	// Value is the number, to be read with its Unit.
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	// Budget is what the value should not exceed; nil if there is none for so many certificates or objects.
	Budget *float64 `json:"budget,omitempty"`
	// Words say what the value is made of, or what the budget is for.
	Words string `json:"words,omitempty"`
}

// mebibytes is a row of so many bytes.
func mebibytes(name string, bytes int64) Row {
	return Row{Name: name, Value: float64(bytes) / (1 << 20), Unit: "MiB"}
}

func (r Row) exceeded() bool { return r.Budget != nil && r.Value > *r.Budget }

// String implements fmt.Stringer.
func (r Row) String() string { return r.Name + ": " + r.text() }

// text is the row without its name.
func (r Row) text() string {
	var text strings.Builder
	if r.Part != "" {
		text.WriteString(r.Part + " ")
	}
	text.WriteString(quantity(r.Value, r.Unit))
	if r.Budget != nil {
		text.WriteString(", budget " + quantity(*r.Budget, r.Unit))
	}
	if r.exceeded() {
		text.WriteString(": EXCEEDED")
	}
	if r.Words != "" {
		text.WriteString(" (" + r.Words + ")")
	}
	return text.String()
}

// quantity is a number with its unit, and with two decimals at most.
func quantity(n float64, unit string) string {
	return strings.TrimSpace(strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) + " " + unit)
}

// WriteText prints the report for people.
func (r *Report) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "Kubernetes %s, %d CPUs, %d certificates in each scenario, %d at a time.\n",
		r.Kubernetes, r.CPUs, r.Certificates, r.Concurrency); err != nil {
		return err
	}
	for i := range r.Scenarios {
		if err := r.Scenarios[i].writeText(w); err != nil {
			return err
		}
	}
	return nil
}

// writeText prints a line for each name, with the rows of that name in columns.
func (s *Scenario) writeText(w io.Writer) error {
	var text bytes.Buffer
	text.WriteString("\n" + s.Name + ": " + s.Title)
	if s.Controller != "" {
		text.WriteString(", by " + s.Controller)
	}
	text.WriteString("\n")
	if s.Failure != "" {
		text.WriteString("\n  NOT MEASURED: " + s.Failure)
	}
	for i, row := range s.Rows {
		if i == 0 || row.Name != s.Rows[i-1].Name {
			text.WriteString("\n  " + row.Name)
		}
		text.WriteString("\t" + row.text())
	}
	text.WriteString("\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := t.Write(text.Bytes()); err != nil {
		return err
	}
	return t.Flush()
}
