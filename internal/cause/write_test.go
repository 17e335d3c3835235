package cause

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestStrangersDecideNoClass: whatever a policy or a webhook says, and whatever value the API server quotes, the class
// is that of who refuses.
func TestStrangersDecideNoClass(t *testing.T) {
	t.Parallel()
	for _, words := range []string{
		"x: field is immutable", "Forbidden: field is immutable when `immutable` is set", "exceeded quota: few, requested: count/secrets=1", "failed quota: few: must specify limits.cpu",
		`secrets "web" is forbidden: User "mallory" cannot patch resource "secrets"`, `User "mallory" cannot`, `admission webhook "x" denied the request: no`,
		"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
	} {
		byPolicy := func(reason metav1.StatusReason, code int32) error { // as k8s.io/apiserver does, in pkg/admission/plugin/policy/validating
			message := "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: " + words
			err := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "web", errors.New(message))
			err.ErrStatus.Reason, err.ErrStatus.Code = reason, code
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
			return err
		}
		byWebhook := func(reason metav1.StatusReason, code int32, typed metav1.CauseType) error { // as in pkg/admission/plugin/webhook/errors
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Reason: reason, Code: code, Message: `admission webhook "policies.example.com" denied the request: ` + words,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: typed, Message: words}}},
			}}
		}
		quoted := func(at, detail string) error {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "web", field.ErrorList{field.Invalid(field.NewPath("metadata", at), words, detail)})
		}
		for name, c := range map[string]struct {
			err  error
			want Class
		}{
			"a policy":                     {byPolicy(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity), Admission},
			"a policy that forbids":        {byPolicy(metav1.StatusReasonForbidden, http.StatusForbidden), Admission},
			"a policy about who asks":      {byPolicy(metav1.StatusReasonUnauthorized, http.StatusUnauthorized), Admission},
			"a policy about the size":      {byPolicy(metav1.StatusReasonRequestEntityTooLarge, http.StatusRequestEntityTooLarge), Admission},
			"a webhook":                    {byWebhook(metav1.StatusReasonForbidden, http.StatusForbidden, metav1.CauseTypeForbidden), Admission},
			"a webhook that finds faults":  {byWebhook(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, metav1.CauseTypeForbidden), Admission},
			"a webhook without a reason":   {byWebhook("", http.StatusBadRequest, ""), Admission},
			"a webhook about who asks":     {byWebhook(metav1.StatusReasonUnauthorized, http.StatusUnauthorized, ""), Admission},
			"a webhook about the size":     {byWebhook(metav1.StatusReasonRequestEntityTooLarge, http.StatusRequestEntityTooLarge, ""), Admission},
			"a webhook with an error":      {byWebhook(metav1.StatusReasonInternalError, http.StatusInternalServerError, ""), Admission},
			"a webhook about a Namespace":  {byWebhook(metav1.StatusReasonForbidden, http.StatusForbidden, corev1.NamespaceTerminatingCause), Admission},
			"a webhook that does not work": {apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %s", "policies.example.com", words)), Webhook},
			"a value":                      {quoted("labels", "a valid label must be an empty string or consist of alphanumeric characters"), Invalid},
			"a value at the end":           {quoted("annotations", ""), Invalid},
		} {
			if got := OfWrite(fmt.Errorf("write the Secret: %w", c.err), "Secret web"); got == nil || got.Class != string(c.want) {
				t.Errorf("%s says %q: %v, not %s", name, words, got, c.want)
			}
		}
	}
}

// TestRefusalsWait: what only a change helps against that is watched is not tried again soon, since each try would be
// told in the status. The rest is tried soon, and then more and more seldom.
func TestRefusalsWait(t *testing.T) {
	t.Parallel()
	const soon, longest = 10 * time.Second, 5 * time.Minute
	for class, first := range map[Class]time.Duration{
		Quota: soon, Admission: soon, Rights: soon, Webhook: soon,
		Immutable: longest, Invalid: longest, TooLarge: longest, NamespaceTerminating: longest,
	} {
		var r Refusals
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for _, want := range []time.Duration{first, min(2*first, longest), min(4*first, longest)} {
			c := New(class, "", "Secret web", "no")
			if got := r.After(c, now); got != want || !c.NextTry.Time.Equal(now.Add(want)) {
				t.Errorf("%s: %s until %v, want %s", class, got, c.NextTry, want)
			}
			now = now.Add(want)
		}
	}
}

// TestOwnWords: what the API server itself says in its own place decides, in each of its forms.
func TestOwnWords(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{apierrors.NewForbidden(secrets, "web", errors.New("exceeded quota: few, requested: count/secrets=1, used: count/secrets=3, limited: count/secrets=3")), Quota},
		{apierrors.NewForbidden(secrets, "web", errors.New("failed quota: few: must specify limits.cpu")), Quota},
		{apierrors.NewForbidden(secrets, "web", errors.New("status unknown for quota: few, resources: count/secrets")), Quota},
		{apierrors.NewForbidden(secrets, "web", errors.New("insufficient quota to consume: count/secrets")), Quota},
		{apierrors.NewForbidden(secrets, "web", errors.New("quota usage is negative for resource(s): count/secrets")), Quota},
		{apierrors.NewForbidden(secrets, "", errors.New(`User "system:serviceaccount:a:b" cannot create resource "secrets" in API group ""`)), Rights},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "x": failed to call webhook: Post "https://x.shop.svc:443/?timeout=10s": context deadline exceeded`)), Webhook},
		{apierrors.NewInternalError(errors.New("rpc error: code = Unavailable desc = connection error: dial unix /var/run/kms.sock: connect: no such file")), ServerError},
		{apierrors.NewForbidden(secrets, "web", errors.New("cannot set blockOwnerDeletion in this case")), Admission},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "web", field.ErrorList{
			field.Invalid(field.NewPath("type"), "kubernetes.io/tls", "field is immutable"),
		}), Immutable},
	} {
		if got := OfWrite(c.err, "Secret web"); got.Class != string(c.want) {
			t.Errorf("%v: %s, not %s", c.err, got.Class, c.want)
		}
	}
}
