package cause

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/fault"
)

// OfWrite returns the cause for the refused write of an object, such as "Secret web"; nil if the API server has not
// refused it. The answers of the API server are typed only in part: a quota, a policy and a missing right all come as
// Forbidden, and only the words tell them apart. Only the API server's own words count, each in its own place:
// strangers choose values, and what policies and webhooks say. If the words change, the class is a broader one, and the
// message says the same.
func OfWrite(err error, object string) *cmmeta.Cause {
	class := classOfWrite(err)
	if class == "" {
		return nil
	}
	return New(class, "", object, err.Error())
}

func classOfWrite(err error) Class {
	var status metav1.Status
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) {
		status = answer.Status()
	}
	words, forbids := forbidding(status)
	switch {
	case err == nil:
		return ""
	// Strangers choose all that follows, and reason, code and typed causes too: so these come first.
	case strings.HasPrefix(status.Message, `admission webhook "`), forbids && strings.HasPrefix(words, "ValidatingAdmissionPolicy '"):
		return Admission
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return NamespaceTerminating
	case apierrors.IsRequestEntityTooLargeError(err):
		return TooLarge
	case apierrors.IsInternalError(err) && strings.HasPrefix(status.Message, "Internal error occurred: failed calling webhook "):
		return Webhook // which does not answer
	case apierrors.IsInternalError(err):
		return ServerError // such as an encryption at rest whose key service is away
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		return ""
	case forbids && byQuota(words):
		return Quota
	case forbids && apierrors.IsForbidden(err) && strings.HasPrefix(words, `User "`):
		return Rights
	case forbids, apierrors.IsForbidden(err): // a policy may forbid with the reason Invalid
		return Admission
	case status.Details != nil && slices.ContainsFunc(status.Details.Causes, immutable):
		return Immutable
	case status.Details != nil && slices.ContainsFunc(status.Details.Causes, tooLong):
		return TooLarge
	default:
		return Invalid
	}
}

// byQuota reports whether words are those of the plugin ResourceQuota of k8s.io/apiserver.
func byQuota(words string) bool {
	return slices.ContainsFunc([]string{
		"exceeded quota: ", "failed quota: ", "insufficient quota to consume: ", "quota usage is negative for resource(s): ",
		"status unknown for quota: ", // of one that was just made
	}, func(its string) bool { return strings.HasPrefix(words, its) })
}

// forbidding returns what the API server says behind the name of what it forbids; false if it says something else.
func forbidding(s metav1.Status) (words string, is bool) {
	of := metav1.StatusDetails{}
	if s.Details != nil {
		of = *s.Details
	}
	named := apierrors.NewForbidden(schema.GroupResource{Group: of.Group, Resource: of.Kind}, of.Name, errors.New(""))
	return strings.CutPrefix(s.Message, named.ErrStatus.Message)
}

// tooLong reports whether a field holds more than an object may: the data of a Secret, or all annotations.
func tooLong(c metav1.StatusCause) bool {
	return c.Type == metav1.CauseTypeTooLong && (c.Field == "data" || c.Field == "metadata.annotations")
}

// immutable reports whether a field may not be changed. The value stands before the words.
func immutable(c metav1.StatusCause) bool {
	const words = "field is immutable"
	return c.Type == metav1.CauseTypeForbidden && strings.HasPrefix(c.Message, "Forbidden: "+words) ||
		c.Type == metav1.CauseTypeFieldValueInvalid && strings.HasSuffix(c.Message, ": "+words)
}

// Refusals counts the writes of an object that the API server has refused in a row for one cause, while the process
// lives.
type Refusals struct {
	cause *cmmeta.Cause
	count int
	until time.Time
}

// After returns how long to wait after one more refusal, and writes the time of the next try into the cause. If an
// event brings a try before that time, the time stays.
func (r *Refusals) After(c *cmmeta.Cause, now time.Time) time.Duration {
	if !c.SameAs(r.cause) {
		r.count = 0
	}
	if r.count == 0 || !now.Before(r.until) {
		r.count++
		r.until = now.Add(waiter(Class(c.Class)).With("").Step(r.count)).Truncate(time.Second)
	}
	r.cause = c
	c.NextTry = &metav1.Time{Time: r.until}
	return r.until.Sub(now)
}

// waiter says how long a write that was refused waits: most of what is in its way, such as a quota, is not watched.
func waiter(class Class) fault.Waiter {
	switch class {
	case Immutable, Invalid, TooLarge, NamespaceTerminating: // what helps is watched: another spec, or another Secret
		return fault.WatchedWrites
	default:
		return fault.Writes
	}
}

// OfError returns the cause for the error of a signer, or of a write; nil for nil.
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
