package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/kubectl/internal/plugin"
)

// checkCredentials is the check in which the controller writes a record.
const checkCredentials = "credentials"

// credentials asks the controller, by an annotation of the issuer, to write a record for a name, to look for the record
// and to remove it: only the controller has the credentials of the DNS provider. Then it removes the annotation.
func (k *checker) credentials(ctx context.Context, p preflight.Proof) preflight.Finding {
	f := preflight.Finding{Check: checkCredentials, Subject: p.Display()}
	id := "preflight-" + rand.String(5)
	err := k.annotate(ctx, id+" "+p.Display())
	if apierrors.IsForbidden(err) {
		return unread(f.Check, f.Subject, fmt.Errorf("you may not update the issuer: %w", err))
	}
	var test *acmev1.ACMESolverTest
	if err == nil {
		defer func() {
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
			defer cancel()
			_ = k.annotate(tidy, nil) // a test that was done is not done again
		}()
		help := "see whether the controller runs, and whether it is of the version of this plugin: kubectl get pods -n cert-manager"
		err = plugin.Await(ctx, k.progress, k.o.timeout, help, func(ctx context.Context) (string, error) {
			if err := k.client.Get(ctx, client.ObjectKeyFromObject(k.issuer), k.issuer); err != nil {
				return "", err
			}
			if status := k.issuer.GetStatus().ACME; status != nil && status.SolverTest != nil && status.SolverTest.ID == id {
				test = status.SolverTest
			}
			if test == nil || test.Outcome == acmev1.SolverTestRunning {
				return "the controller has not finished the test of " + p.Display() + " yet", nil
			}
			return "", nil
		})
	}
	if err != nil {
		return unread(f.Check, f.Subject, err)
	}
	return judge(f, test)
}

// judge says how the test of a solver came out.
func judge(f preflight.Finding, test *acmev1.ACMESolverTest) preflight.Finding {
	f.Message = test.Message
	switch test.Outcome {
	case acmev1.SolverTestPassed:
		f.Outcome = preflight.OK
		f.Message = cmp.Or(f.Message, "the controller wrote a record, saw it and removed it")
	case acmev1.SolverTestNotApplicable:
		f.Outcome = preflight.NotChecked
	default:
		f.Outcome = preflight.Failed
		f.Message = fmt.Sprintf("step %s: %s", test.Step, test.Message)
		f.WhatToDo = "Correct the solver of the issuer, or the Secret with the credentials of the DNS provider"
	}
	return f
}

// annotate sets the annotation of the issuer that asks for a test; nil removes it.
func (k *checker) annotate(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{cmmeta.TestSolverAnnotation: value}}})
	if err != nil {
		return err
	}
	return k.client.Patch(ctx, k.issuer, client.RawPatch(types.MergePatchType, patch))
}
