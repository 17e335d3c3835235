package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/rig"
)

// TestUnknownTimeZoneIsSaid: the API server knows no time zones. One that there is not is said in the condition Ready,
// as soon as there is a certificate.
func TestUnknownTimeZoneIsSaid(t *testing.T) {
	t.Parallel()
	w := rig.NewWorld(t)
	w.Run(t, w.Config())
	crt := certificate(w, "web", "self", "web.example.com")
	crt.Spec.Renewal = &certmanagerv1.CertificateRenewal{Policy: certmanagerv1.RenewalPolicyRenewBefore, Windows: []certmanagerv1.CertificateRenewalWindow{
		{Cron: "@daily", WindowDuration: metav1.Duration{Duration: time.Hour}, Timezone: "Mars/Olympus_Mons"},
	}}
	w.Create(t, clusterIssuer(w, "self", certmanagerv1.IssuerSpec{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}), crt)
	rig.Eventually(t, "the condition names the time zone", func(ctx context.Context) string {
		if err := w.Get(ctx, "web", crt); err != nil {
			return err.Error()
		}
		ready := certmanagerv1.FindCertificateCondition(crt.Status.Conditions, certmanagerv1.CertificateConditionReady)
		if ready == nil || ready.Reason != certmanagerv1.CertificateReasonWindowError || !strings.Contains(ready.Message, "Mars/Olympus_Mons") {
			return fmt.Sprintf("%+v", crt.Status.Conditions)
		}
		return ""
	})
}
