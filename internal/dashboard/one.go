package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/clientside/explain"
)

// one is the page about one certificate, in the words of status.
type one struct {
	frame

	Report explain.Report
	Row    explain.Row
	// Conclusion is the state with the cause, what to do, and the next try. Command is what to run.
	Conclusion []explain.Line
	Command    string
	Top        branch
	Names      []string
	Life       *life
	History    []happened
	// More says that not everything is shown.
	More bool
}

// certificate shows one certificate: cause and cure first.
func (s *site) certificate(w http.ResponseWriter, r *http.Request) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	f := s.frame("Certificate " + key.String())
	crt := f.picture.certificates[key]
	if crt == nil {
		s.show(w, http.StatusNotFound, "none", f)
		return
	}
	f.Now = time.Now()
	world := f.world.At(f.Now)
	report := world.Certificate(crt)
	report.Announced = world.Announced(crt, true)
	view := one{frame: f, Report: report, Row: explain.WorstFirst([]explain.Report{report}, f.Now)[0], Life: lifeOf(crt, f.Now)}
	view.Conclusion = append([]explain.Line{{Label: "state", Text: report.StateAndCause(f.Now)}}, report.Advice(f.Now)...)
	for i := range view.Conclusion {
		left := space(lineText)
		view.Conclusion[i].Text = left.take(view.Conclusion[i].Text)
	}
	view.Command = cmp.Or(report.Command, "kubectl chancery status -n "+report.Namespace+" "+report.Name)
	left := space(treeText)
	top := report.Node
	top.Children = nil
	if report.Cause != "" && top.Outcome == explain.Issued.String() {
		top.Outcome = explain.Waiting.String() // it is there, and still not all is well
	}
	view.Top = branchOf(top, &left)
	for _, n := range report.Chain() {
		if left > 0 {
			view.Top.Children = append(view.Top.Children, branchOf(n, &left))
		}
	}
	for _, h := range history(crt, world) {
		if left -= branchTags; left <= 0 {
			break
		}
		h.What = left.take(h.What)
		view.History = append(view.History, h)
	}
	leftOfNames := space(nameText)
	for _, name := range report.Names {
		if leftOfNames -= 30; leftOfNames <= 0 { // the tags around it
			break
		}
		view.Names = append(view.Names, leftOfNames.take(name))
	}
	view.More = left <= 0 || leftOfNames <= 0
	view.News = report.Title() + ": " + report.State
	s.show(w, http.StatusOK, "certificate", view)
}

// branch is an object of the tree, in the words of status.
type branch struct {
	Title, State, Says, Outcome string
	Children                    []branch
}

// branchOf stops when no text is left.
func branchOf(n explain.Node, left *space) branch {
	*left -= branchTags
	b := branch{Title: left.take(n.Title()), State: left.take(n.State), Says: left.take(n.OwnReason()), Outcome: n.Outcome}
	for _, child := range n.Children {
		if *left <= 0 {
			break
		}
		b.Children = append(b.Children, branchOf(child, left))
	}
	return b
}

// happened is a line of the history, or a time to come.
type happened struct {
	At   metav1.Time
	What string
	// Now marks the present, between the past and the future.
	Now bool
}

// history is what is known of the past of a Certificate, the latest first: its requests that are still there, and what
// its status tells.
func history(crt *certmanagerv1.Certificate, w *explain.Cluster) []happened {
	all := []happened{{At: crt.CreationTimestamp, What: "the Certificate was created"}}
	for _, request := range w.Requests(crt) {
		d := explain.Describe(request)
		all = append(all, happened{At: request.CreationTimestamp, What: "CertificateRequest " + request.Name + ": " + d.Words()})
	}
	s := crt.Status
	if s.LastFailureTime != nil {
		what := "an issuance failed"
		if n := s.FailedIssuanceAttempts; n != nil && *n > 1 {
			what += ", the last of " + strconv.Itoa(*n) + " in a row"
		}
		all = append(all, happened{At: *s.LastFailureTime, What: what})
	}
	for _, c := range s.Conditions {
		if c.LastTransitionTime != nil {
			all = append(all, happened{At: *c.LastTransitionTime, What: string(c.Type) + " became " + string(c.Status) + ": " + cmp.Or(c.Message, c.Reason)})
		}
	}
	slices.SortStableFunc(all, func(x, y happened) int { return y.At.Compare(x.At.Time) })
	return all
}

// life is the time line of one certificate.
type life struct {
	// Gone is the part of the lifetime that has passed, Renewal the part after which the renewal is due, in percent.
	Gone, Renewal float64
	// Times are the times on the line, in their order. The present is among them.
	Times []happened
}

// lifeOf is nil where there is no certificate.
func lifeOf(crt *certmanagerv1.Certificate, now time.Time) *life {
	s := crt.Status
	if s.NotAfter == nil || s.NotBefore == nil || !s.NotBefore.Before(s.NotAfter) {
		return nil
	}
	at := func(when time.Time) float64 {
		return min(max(when.Sub(s.NotBefore.Time).Hours()/s.NotAfter.Sub(s.NotBefore.Time).Hours()*100, 0), 100)
	}
	l := &life{Gone: at(now), Times: []happened{
		{At: *s.NotBefore, What: "valid from"}, {At: metav1.NewTime(now), What: "now", Now: true}, {At: *s.NotAfter, What: "expires"},
	}}
	if s.RenewalTime != nil {
		l.Renewal = at(s.RenewalTime.Time)
		l.Times = append(l.Times, happened{At: *s.RenewalTime, What: "renewal due"})
	}
	if s.NextTry != nil {
		l.Times = append(l.Times, happened{At: *s.NextTry, What: "next try"})
	}
	slices.SortStableFunc(l.Times, func(x, y happened) int { return x.At.Compare(y.At.Time) })
	return l
}
