package status

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/kubectl/internal/plugin"
)

// inTroubleBy is a Certificate that has failed for a cause of a class, by an issuer of a namespace.
func inTroubleBy(namespace, name, class string) explain.Report {
	return explain.Report{
		Node:    explain.Node{Kind: "Certificate", Namespace: namespace, Name: name, State: "failed", Outcome: explain.Failed.String()},
		Issuer:  explain.Node{Kind: "Issuer", Namespace: namespace, Name: "ca"},
		Trouble: explain.Trouble{Class: class, Cause: class + ": " + strings.Repeat("long ", 100), WhatToDo: strings.Repeat("help ", 40)},
	}
}

// TestGroups: trouble is told by cause and issuer, the worst first, and Issuers of two namespaces are two.
func TestGroups(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := inTroubleBy("a", "good", "")
	good.State, good.Outcome, good.Cause = "ready", explain.Issued.String(), ""
	expired := inTroubleBy("b", "expired", "worst")
	expired.Expires = &metav1.Time{Time: now.Add(-time.Hour)}
	reports := []explain.Report{
		inTroubleBy("a", "one", "same"), inTroubleBy("a", "two", "same"), inTroubleBy("b", "three", "same"), good, expired,
	}
	var got []string
	for _, g := range explain.Groups(reports, now) {
		got = append(got, fmt.Sprint(g.Class, " ", g.Issuer, " ", g.Certificates))
	}
	if want := []string{"worst Issuer/b/ca [b/expired]", "same Issuer/a/ca [a/one a/two]", "same Issuer/b/ca [b/three]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var names bytes.Buffer
	o := &options{output: "name", notReady: true}
	if err := o.write(plugin.Streams{Out: &names, ErrOut: &names}, printer{out: &names}, reports, ""); err != nil {
		t.Fatal(err)
	}
	if want := "certificate/one\ncertificate/two\ncertificate/three\ncertificate/expired\n"; names.String() != want {
		t.Errorf("-o name --not-ready: %q", names.String())
	}
}

// TestGroupsFitAScreen: however much trouble there is, a screen shows the worst, and says how much more there is.
func TestGroupsFitAScreen(t *testing.T) {
	t.Parallel()
	var reports []explain.Report
	for i := range 60 {
		for j := range 60 - i {
			reports = append(reports, inTroubleBy("shop", fmt.Sprintf("web-%d-%d", i, j), fmt.Sprintf("class %02d", i)))
		}
	}
	var out bytes.Buffer
	printer{out: &out}.groups(explain.Groups(reports, time.Now()), reports)
	said, height, told := out.String(), 0, 0
	for line := range strings.Lines(said) {
		height += (len([]rune(strings.TrimSuffix(line, "\n"))) + columns - 1) / columns
		if strings.Contains(line, " Certificates of ") {
			told++
		}
	}
	if height > lines || told < 2 || !strings.HasPrefix(said, "60 Certificates of Issuer/shop/ca: class 00") ||
		!strings.Contains(said, fmt.Sprintf("and %d causes more, of ", 60-told)) {
		t.Errorf("%d lines, %d causes:\n%s", height, told, said)
	}
	out.Reset()
	printer{out: &out}.groups(explain.Groups(reports[:1], time.Now()), reports[:1])
	if said := out.String(); !strings.HasPrefix(said, "1 Certificate of ") || strings.Contains(said, "more") {
		t.Error(said)
	}
}

// TestNumbers: several Certificates end with how many have which health, as the dashboard and the metrics count them,
// and one does not; other kinds do not count.
func TestNumbers(t *testing.T) {
	t.Parallel()
	one, two, request := inTroubleBy("a", "one", "same"), inTroubleBy("a", "two", "same"), inTroubleBy("a", "three", "same")
	one.Health, two.Health = explain.Failing, explain.Expired
	const want = "2 Certificates: 1 expired, 0 late, 1 failing, 0 issuing, 0 healthy\n"
	for shown, write := range map[string]func(printer, ...explain.Report){
		"all":    func(p printer, reports ...explain.Report) { p.all(reports, time.Now()) },
		"groups": func(p printer, reports ...explain.Report) { p.groups(explain.Groups(reports, time.Now()), reports) },
	} {
		var out, none bytes.Buffer
		write(printer{out: &out}, one, two, request)
		write(printer{out: &none}, request, request)
		if !strings.HasSuffix(out.String(), "\n"+want) || strings.Contains(none.String(), "healthy") {
			t.Errorf("%s: %s\n%s", shown, &out, &none)
		}
	}
}
