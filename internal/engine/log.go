package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/kube/leader/term"
	"chancery.dev/internal/kube/ownwrites"
	"chancery.dev/internal/limits"
)

// decided is the message of each line about a decision.
const decided = "decided"

// Logged is an error of a pass that the engine has written into the log already.
type Logged struct{ Err error }

// Error returns the text of the error.
func (l *Logged) Error() string { return l.Err.Error() }

// Unwrap returns the error.
func (l *Logged) Unwrap() error { return l.Err }

// IsTransient reports whether an error comes in a cluster that is in order, and goes without anybody's help: somebody
// else has written first, an object or its namespace is being deleted, the API server is started again, the process
// stops, or may not act for a while.
func IsTransient(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, term.ErrOver):
		return true
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), ownwrites.IsGone(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return true
	case apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		return true
	default:
		return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
	}
}

// passLog is what the log tells of one pass.
type passLog struct {
	mu sync.Mutex
	// namespace of the object.
	namespace string
	// steps are what was changed, causes and reasons the events about that.
	steps, causes, reasons []string
	// status is what the status says of the cause: it counts where no event tells.
	status string
}

// passLogKey is the key of the context of a pass for its passLog.
type passLogKey struct{}

// withLogState returns the context of a pass, whose writes are noted in the passLog.
func withLogState(ctx context.Context, a *passLog) context.Context {
	ctx = ownwrites.Noting(ctx, func(verb, kind string, name types.NamespacedName) {
		text := verb + " " + kind + " " + name.Name
		if name.Namespace != a.namespace && name.Namespace != "" {
			text = verb + " " + kind + " " + name.String()
		}
		a.did(text)
	})
	return context.WithValue(ctx, passLogKey{}, a)
}

// did notes a change.
func (a *passLog) did(step string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps = append(a.steps, step)
}

// few joins the first of a list, and says how many more there are.
func few(list []string) string {
	if more := len(list) - limits.Listed; more > 0 {
		list = append(slices.Clip(list[:limits.Listed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// addCause adds a cause, and the reason of the event that says it.
func (a *passLog) addCause(cause, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A pass may have thousands of causes: only those that are told are compared.
	if cause = clip(cause); cause != "" && !slices.Contains(a.causes[:min(len(a.causes), limits.Listed)], cause) {
		a.causes = append(a.causes, cause)
	}
	if reason != "" && !slices.Contains(a.reasons, reason) {
		a.reasons = append(a.reasons, reason)
	}
}

// statusSet notes the write of a status in the passLog of the pass. The scheduler of challenges writes outside of any
// pass whose turn it is: that comes at level 1.
func (e *Engine) statusSet(ctx context.Context, old, changed client.Object) {
	if old.GetResourceVersion() == changed.GetResourceVersion() {
		return
	}
	what, why := newIn(old, changed)
	a, within := ctx.Value(passLogKey{}).(*passLog)
	step := strings.TrimSpace("set status " + strings.Join(what, ", "))
	if !within {
		e.log.V(1).Info("turn", "object", objectOf(e.client.KindOf(changed), client.ObjectKeyFromObject(changed)), "step", step)
		return
	}
	a.did(step)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = cmp.Or(why, a.status)
}

// objectOf is an object in a line of the log.
func objectOf(kind string, name types.NamespacedName) string {
	return kind + " " + strings.TrimPrefix(name.String(), "/")
}

// line writes the line of the log about a passLog. An error that is not transient is an error in the log, too.
func (e *Engine) line(kind string, name types.NamespacedName, a *passLog, next string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cause := cmp.Or(few(a.causes), clip(a.status))
	values := []any{"object", objectOf(kind, name), "step", few(a.steps), "cause", cause}
	if len(a.reasons) > 0 {
		values = append(values, "reason", strings.Join(a.reasons, " "))
	}
	values = append(values, "next", next)
	if err != nil && !IsTransient(err) {
		e.log.Error(nil, decided, values...)
		return
	}
	e.log.Info(decided, values...)
}

// logPass writes the line of the log about a pass that has ended, if the pass has changed something, or has failed for
// a reason that is new. That the object waits for something else comes at level 1.
func (r *Runner[O, M, S, A]) logPass(a *passLog, o owner, wait Wait, before For, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	changed := wait.For != before
	repeated := before.What == WaitBackOff && IsTransient(err)
	failed := wait.What == WaitBackOff && !repeated
	if len(a.steps)+len(a.causes) == 0 && !(changed && failed) {
		if log := r.engine.log.V(1); changed && log.Enabled() {
			log.Info("waits", "object", objectOf(o.kind, o.name),
				"cause", wait.Detail, "next", r.next(o, wait))
		}
		return
	}
	if err != nil {
		a.addCause(err.Error(), "")
	}
	a.status = cmp.Or(a.status, wait.Detail)
	r.engine.line(o.kind, o.name, a, r.next(o, wait), err)
}

// next says what makes the engine decide on an object again.
func (r *Runner[O, M, S, A]) next(o owner, wait Wait) string {
	calls := r.engine.calls.under(o)
	switch {
	case len(calls) > 0:
		return "answer to " + strings.Join(calls, ", ")
	case !wait.Until.IsZero():
		return wait.Until.UTC().Format(time.RFC3339)
	case wait.What == WaitBackOff:
		return "soon"
	case wait.What == WaitNothing:
		return "nothing"
	default:
		return "event"
	}
}

// longestValue is the longest value of a status that a line of the log shows.
const longestValue = 40

// newIn says which fields of a status are new, and the reason, or the message of the last condition that is new.
func newIn(old, changed client.Object) (what []string, why string) {
	before, after := statusOf(old), statusOf(changed)
	if !before.IsValid() || !after.IsValid() {
		return nil, ""
	}
	for i := range after.NumField() {
		field, now := after.Type().Field(i), after.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch was := before.Field(i); {
		case field.Name == "ObservedGeneration", reflect.DeepEqual(was.Interface(), now.Interface()):
		case field.Name == "Conditions":
			conditions, message := newConditions(was, now)
			what, why = append(what, conditions...), cmp.Or(why, message)
		case field.Name == "Reason":
			why = cmp.Or(now.String(), why)
		case now.Kind() == reflect.Bool, now.Kind() == reflect.Int, now.Kind() == reflect.String && 0 < now.Len() && now.Len() <= longestValue:
			what = append(what, fmt.Sprintf("%s=%v", name, now.Interface()))
		default:
			what = append(what, name)
		}
	}
	return what, why
}

// newConditions lists the conditions that are new or different, and returns the message of the last. The conditions for
// kstatus are left out: they say what the others say.
func newConditions(was, now reflect.Value) (what []string, message string) {
	field := func(condition reflect.Value, name string) string {
		return fmt.Sprint(condition.FieldByName(name).Interface())
	}
	for i := range now.Len() {
		c, same := now.Index(i), false
		for j := range was.Len() {
			same = same || reflect.DeepEqual(was.Index(j).Interface(), c.Interface())
		}
		if kind := field(c, "Type"); same || kind == "Reconciling" || kind == "Stalled" {
			continue
		}
		what = append(what, field(c, "Type")+"="+field(c, "Status"))
		message = cmp.Or(field(c, "Message"), message)
	}
	return what, message
}

func statusOf(object client.Object) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName("Status")
}
