package vault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestOwnTokens: whoever asks for a token of the controller's own service account, it is for Vault issuers and AWS
// alone.
func TestOwnTokens(t *testing.T) {
	var asked []string
	api := interceptor.NewClient(nil, interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, account, request client.Object, _ ...client.SubResourceCreateOption) error {
			r := request.(*authenticationv1.TokenRequest)
			asked, r.Status.Token = append(asked, fmt.Sprint(account.GetName(), r.Spec.Audiences)), "ey"
			return nil
		},
	})
	token := TokenRequests(api, func(_ context.Context, account types.NamespacedName) (bool, error) { return account.Name == "own", nil })
	const refused = "tokens of the controller's own service account team/own are for the audiences sts.amazonaws.com and vault://… only"
	for _, c := range []struct {
		account   string
		audiences []string
		says      string
	}{
		{"other", nil, ""}, {"other", []string{"https://kubernetes.default.svc"}, ""},
		{"own", []string{"vault://v"}, ""}, {"own", []string{"sts.amazonaws.com"}, ""},
		{"own", nil, refused}, {"own", []string{"https://kubernetes.default.svc"}, refused}, {"own", []string{"vault://v", "mine"}, refused},
	} {
		asked = nil
		_, err := token(t.Context(), types.NamespacedName{Namespace: "team", Name: c.account}, c.audiences)
		if c.says == "" && (err != nil || !slices.Equal(asked, []string{fmt.Sprint(c.account, c.audiences)})) {
			t.Errorf("%+v: %v, %q", c, err, asked)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || asked != nil) {
			t.Errorf("%+v: %v, %q", c, err, asked)
		}
	}
}
