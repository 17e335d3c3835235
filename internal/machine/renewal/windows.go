package renewal

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones must not depend on what is installed where we run

	"github.com/robfig/cron/v3"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// window is a repeated time: it is open from each time of the schedule on for length.
type window struct {
	schedule cron.Schedule
	length   time.Duration
	zone     *time.Location
}

// CheckWindows says which window cannot be read, and why.
func CheckWindows(renewal *certmanagerv1.CertificateRenewal) error {
	if renewal == nil {
		return nil
	}
	for i := range renewal.Windows {
		if _, err := parseWindow(&renewal.Windows[i]); err != nil {
			return fmt.Errorf("spec.renewal.windows[%d]: %w", i, err)
		}
	}
	return nil
}

// parseWindow reads a window; an error says what of it is wrong.
func parseWindow(w *certmanagerv1.CertificateRenewalWindow) (window, error) {
	out := window{length: w.WindowDuration.Duration, zone: time.UTC}
	if out.length <= 0 {
		return out, fmt.Errorf("windowDuration: must be more than %s", w.WindowDuration.Duration)
	}
	var err error
	if w.Timezone != "" {
		// "Local" is the one of wherever we run.
		if out.zone, err = time.LoadLocation(w.Timezone); err != nil || w.Timezone == "Local" {
			return out, fmt.Errorf("timezone: %q is not a time zone of the IANA database", w.Timezone)
		}
	}
	out.schedule, err = parseCron(w.Cron)
	if err != nil {
		return out, fmt.Errorf("cron: %q: %w", w.Cron, err)
	}
	return out, nil
}

// parseCron reads five cron fields or a word. The parser panics where a time zone
// prefix is all there is, and where what follows it is not a space.
func parseCron(text string) (cron.Schedule, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return nil, errors.New("it is empty")
	}
	if zoned := strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ="); zoned && len(fields) == 1 {
		return nil, errors.New("there is nothing after the time zone")
	}
	if strings.HasSuffix(fields[0], "TZ=Local") {
		return nil, errors.New("Local is not a time zone of the IANA database")
	}
	if fields[0] == "@every" {
		return nil, errors.New("@every has no begin: name the hours instead")
	}
	return cron.ParseStandard(strings.Join(fields, " "))
}

// firstFrom returns the first time from due on at which the window is open; zero if
// it never opens again.
func (w window) firstFrom(due time.Time) time.Time {
	opens := w.schedule.Next(due.Add(-w.length).In(w.zone))
	switch {
	case opens.IsZero():
		return opens
	case opens.After(due):
		return opens.UTC()
	default:
		return due
	}
}
