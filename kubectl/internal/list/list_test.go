package list

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/rig"
	"chancery.dev/internal/rig/growth"
	"chancery.dev/kubectl/internal/plugin"
)

// certificate ends in some days; with 0 days there is none yet.
func certificate(name string, days int, now time.Time) *certmanagerv1.Certificate {
	crt := &certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name)}}
	crt.Spec = certmanagerv1.CertificateSpec{
		SecretName: name + "-tls", DNSNames: []string{name + ".example.com"}, IssuerRef: cmmeta.IssuerReference{Name: "ca"},
	}
	ready := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, Reason: "Ready", Message: "good"}
	if days == 0 {
		ready.Status, ready.Reason, ready.Message = cmmeta.ConditionFalse, "DoesNotExist", "no Secret"
	} else {
		crt.Status.NotAfter = &metav1.Time{Time: now.Add(time.Duration(days)*24*time.Hour + time.Hour)}
		crt.Status.RenewalTime = &metav1.Time{Time: now.Add(time.Duration(days-1) * 24 * time.Hour)}
	}
	crt.Status.Conditions = []certmanagerv1.CertificateCondition{ready}
	return crt
}

func reports(now time.Time, certificates ...*certmanagerv1.Certificate) (all []explain.Report) {
	var objects []metav1.Object
	for _, crt := range certificates {
		objects = append(objects, crt)
	}
	w := explain.NewCluster(objects, nil, now)
	for _, crt := range certificates {
		all = append(all, w.Certificate(crt))
	}
	return all
}

// TestRows: what ends first is on top, and a filter takes what it says.
func TestRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := reports(now, certificate("late", 60, now), certificate("soon", 5, now), certificate("none", 0, now), certificate("over", -2, now))
	const day = 24 * time.Hour
	for want, f := range map[string]explain.Filter{
		"none over soon late":       {},
		"over soon":                 {Expiring: 14 * day},
		"none over":                 {NotReady: true},
		"none over soon":            {Expiring: 14 * day, NotReady: true},
		"none over soon late ":      {Issuer: "ca"},
		"none over soon late by ca": {Issuer: "issuer/CA"},
		"":                          {Issuer: "clusterissuer/ca"},
	} {
		var names []string
		for _, r := range explain.Rows(all, f, now) {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != strings.TrimSpace(strings.TrimSuffix(want, " by ca")) {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	var text, people bytes.Buffer
	rows := explain.Rows(all, explain.Filter{}, now)
	if err := errors.Join((&options{}).formats()["csv"](&text, rows, true, now), (&options{}).formats()[""](&people, rows, false, now)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	if want := "shop,soon,2026-01-07T04:04:05Z,2026-01-06T03:04:05Z,Issuer/ca,ready,,,soon-tls,soon.example.com"; lines[3] != want {
		t.Errorf("csv:\n%s\nwant %s", text.String(), want)
	}
	for _, want := range []string{"soon  ready         5\n", "over  expired      -2", "Issuer shop/ca does not exist"} {
		if !strings.Contains(people.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, people.String())
		}
	}
}

// TestWidth: on 80 columns, the cause is seen of each Certificate, however long its name is, and nothing before the
// cause is cut.
func TestWidth(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const longest = 70
	for length := 1; length <= longest; length++ {
		long := strings.Repeat("n", length)
		rows := []explain.Row{
			{Namespace: "payments", Name: long, State: "expired, ready, renewal failed", Expires: &metav1.Time{Time: now.Add(-1000 * 24 * time.Hour)}},
			{Namespace: "shop", Name: "web", State: "ready, renewal failed"}, {Namespace: "shop", Name: "api", State: "ready"},
		}
		for i := range rows[:2] {
			rows[i].Cause = "www.example.org: the CA refused: " + strings.Repeat("x", 300)
		}
		var out bytes.Buffer
		if err := (table{}).narrow(&out, rows, true, now, screen); err != nil {
			t.Fatal(err)
		}
		said := out.String()
		if strings.Count(said, "www.example.org: the CA refu") != 2 || strings.Count(said, "renewal failed") != 1 ||
			!strings.Contains(said, "payments/"+long) || !strings.Contains(said, "expired") || !strings.Contains(said, " -1000 ") {
			t.Fatalf("a name of %d:\n%s", length, said)
		}
		for line := range strings.Lines(said) {
			if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > screen {
				t.Fatalf("a name of %d: %d columns:\n%s", length, width, said)
			}
		}
		out.Reset()
		if err := (&options{}).formats()[""](&out, rows, true, now); err != nil || strings.Count(out.String(), rows[0].Cause+"\n") != 2 {
			t.Fatalf("a name of %d: what is no terminal gets causes that are cut: %v\n%s", length, err, out.String())
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"14d": 336 * time.Hour, "36h": 36 * time.Hour, "": 0, "0d": 0, "-1h": 0, "xd": 0} {
		if got, err := within(text); got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %s %v", text, got, err)
		}
	}
}

// TestTenThousand: a list of 10,000 Certificates is explained, sorted and written in a second of the processor's time.
func TestTenThousand(t *testing.T) {
	now := time.Now()
	var all []*certmanagerv1.Certificate
	for i := range 10_000 {
		all = append(all, certificate(fmt.Sprintf("web-%d", i), (i*7919)%90, now))
	}
	cost := growth.Measure(func() {
		if err := (&options{}).formats()["wide"](io.Discard, explain.Rows(reports(now, all...), explain.Filter{}, now), true, now); err != nil {
			t.Error(err)
		}
	})
	t.Logf("10,000 Certificates: %s", cost)
	if cost.CPU > time.Second {
		t.Errorf("10,000 Certificates took %s of the processor's time", cost.CPU)
	}
}

// command runs the command with a kubeconfig.
func command(path string) func(ctx context.Context, args ...string) (said string, code int, err error) {
	return func(ctx context.Context, args ...string) (said string, code int, err error) {
		var out bytes.Buffer
		cmd := New(plugin.Streams{Out: &out, ErrOut: &out})
		cmd.SetArgs(append([]string{"--kubeconfig", path}, args...))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err = cmd.ExecuteContext(ctx)
		var exit plugin.ExitError
		if errors.As(err, &exit) {
			return out.String(), exit.Code, nil
		}
		return out.String(), 0, err
	}
}

// TestList: the exit status is for scripts, and rows are sorted by what the user says.
func TestList(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Create(t,
		&certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Spec: certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}},
		&certmanagerv1.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: certificate("web", 1, time.Now()).Spec})
	w.Run(t, w.Config())
	run := command(rig.Kubeconfig(t, w.Admin, w.Namespace))
	rig.Eventually(t, "the certificate is listed as ready", func(ctx context.Context) string {
		if said, code, err := run(ctx, "--not-ready"); err != nil || code != 0 || !strings.Contains(said, "no Certificates") {
			return fmt.Sprint(said, code, err)
		}
		return ""
	})
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"":                         {0, "ready  "},
		"-o wide":                  {0, "web.example.com"},
		"-o csv":                   {0, "namespace,name,expires"},
		"-o yaml":                  {0, "state: ready"},
		"--expiring 200d":          {found, "web"},
		"--expiring 14d":           {0, "no Certificates"},
		"--issuer issuer/other":    {0, "no Certificates"},
		"--expiring 1d -o json":    {0, `"items": []`},
		"-A --issuer ca -l app=no": {0, "no Certificates"},
		"--sort-by .renews":        {0, "ready  "},
	} {
		if said, code, err := run(t.Context(), strings.Fields(args)...); err != nil || code != want.code || !strings.Contains(said, want.says) {
			t.Errorf("%s: %d %v\n%s", args, code, err, said)
		}
	}
	for _, args := range []string{"-o xml", "--expiring soon", "-l =", "web", "--sort-by age"} {
		if said, code, err := run(t.Context(), strings.Fields(args)...); err == nil {
			t.Errorf("%s: %d\n%s", args, code, said)
		}
	}
}
