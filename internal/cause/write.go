package cause

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// OfWrite returns the cause that a refused write of an object is, such as "Secret web"; nil where the error is no
// refusal of the API server. Its answers are typed only in part: a quota, a policy and a missing right all come as
// Forbidden, and are told from one another by the words of the API server. Where those change, the class is a broader
// one, and the message says the same.
func OfWrite(err error, object string) *cmmeta.Cause {
	class := classOfWrite(err)
	if class == "" {
		return nil
	}
	return New(class, "", object, err.Error())
}

func classOfWrite(err error) Class {
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(err.Error(), w) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return ""
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return NamespaceTerminating
	case apierrors.IsRequestEntityTooLargeError(err):
		return TooLarge
	case apierrors.IsInternalError(err):
		return Webhook // a webhook that does not answer
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		return ""
	case says("exceeded quota", "must specify"): // of the plugin ResourceQuota
		return Quota
	case says("ValidatingAdmissionPolicy", "denied the request"):
		return Admission
	case apierrors.IsInvalid(err) && says("is immutable"):
		return Immutable
	case apierrors.IsForbidden(err) && says(`User "`):
		return Rights
	case apierrors.IsForbidden(err):
		return Admission
	default:
		return Invalid
	}
}

// OfError returns the cause that the error of a signer, or of a write, is; nil for nil.
func OfError(err error) *cmmeta.Cause {
	if err == nil {
		return nil
	}
	if f := fault.Of(err); f != nil {
		return New(Class(f.Class), "", "", err.Error())
	}
	if c := OfWrite(err, ""); c != nil {
		return c
	}
	return New(Other, "", "", err.Error())
}
