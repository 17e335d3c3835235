package account

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Share is how many new orders one namespace may make with an account in a window of time. The zero value is no limit.
type Share struct {
	Orders int
	Window time.Duration
}

// ParseShare reads a share such as 50/3h: fifty orders in three hours. An empty text is no limit.
func ParseShare(text string) (Share, error) {
	if text == "" {
		return Share{}, nil
	}
	number, window, _ := strings.Cut(text, "/")
	orders, err := strconv.Atoi(number)
	length, err2 := time.ParseDuration(window)
	if err != nil || err2 != nil || orders < 1 || length < time.Minute {
		return Share{}, fmt.Errorf("%q is not a number of orders and a window of a minute or more, such as 50/3h", text)
	}
	return Share{orders, length}, nil
}

// shares counts the orders that were sent, in windows. A window begins with its first order.
//
// Replacements of earlier certificates have a share of the same size beside that of new ones: however many new
// certificates a namespace asks for, those that it has are renewed in time.
//
// The zero value is ready.
type shares map[claimant]window

// claimant is who has a share.
type claimant struct {
	namespace string
	replaces  bool
}

// window is how many orders were sent until a time.
type window struct {
	until  time.Time
	orders int
}

func (o Order) claimant() claimant { return claimant{o.Namespace, o.Replaces || o.Renewal} }

// held returns until when an order is not to be sent, and why; zero if it may be.
func (s shares) held(o Order, now time.Time) Park {
	w := s[o.claimant()]
	if o.Share.Orders == 0 || !now.Before(w.until) || w.orders < o.Share.Orders {
		return Park{}
	}
	what := "new certificates"
	if o.claimant().replaces {
		what = "renewals"
	}
	return Park{Until: w.until, Reason: fmt.Sprintf("not sent, because namespace %q has used up its share of the issuer's orders for %s, "+
		"which is %d in %s, until %s", o.Namespace, what, o.Share.Orders, brief(o.Share.Window), w.until.UTC().Format(time.RFC3339))}
}

// count adds n orders: -1 takes back one that the CA has not taken.
func (s *shares) count(o Order, n int, now time.Time) {
	if o.Share.Orders == 0 {
		return
	}
	w, ok := (*s)[o.claimant()]
	if !ok || !now.Before(w.until) {
		if n < 0 {
			return // its window is over
		}
		maps.DeleteFunc(*s, func(_ claimant, w window) bool { return !now.Before(w.until) })
		w = window{until: now.Add(o.Share.Window)}
	}
	w.orders = max(w.orders+n, 0)
	if *s == nil {
		*s = shares{}
	}
	(*s)[o.claimant()] = w
}

// brief is a duration without what is zero at its end.
func brief(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		return short + "h"
	}
	return text
}
