package signer

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
)

// Every Secret that any provider of DNS-01 can name is listed, found by the types
// themselves: a provider or a field that is added later is not forgotten.
func TestDNS01SecretNames(t *testing.T) {
	providers := reflect.TypeFor[acmev1.DNS01Solver]()
	for i := range providers.NumField() {
		field := providers.Field(i)
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			var solver acmev1.DNS01Solver
			config := reflect.New(field.Type.Elem())
			var want []string
			for j := range config.Elem().NumField() {
				name := fmt.Sprintf("%s-%d", field.Name, j)
				switch v := config.Elem().Field(j); v.Interface().(type) {
				case cmmeta.SecretKeySelector:
					v.Set(reflect.ValueOf(cmmeta.SecretKeySelector{Name: name, Key: "key"}))
				case *cmmeta.SecretKeySelector:
					v.Set(reflect.ValueOf(&cmmeta.SecretKeySelector{Name: name, Key: "key"}))
				case *cmmeta.LocalObjectReference:
					v.Set(reflect.ValueOf(&cmmeta.LocalObjectReference{Name: name}))
				default:
					continue
				}
				want = append(want, name)
			}
			reflect.ValueOf(&solver).Elem().Field(i).Set(config)
			acme := acmev1.ACMEIssuer{
				PrivateKey: cmmeta.SecretKeySelector{Name: "account"}, Solvers: []acmev1.ACMEChallengeSolver{{DNS01: &solver}, {DNS01: &acmev1.DNS01Solver{}}},
			}
			got := SecretNames(&certmanagerv1.IssuerSpec{ACME: &acme})
			slices.Sort(want)
			rest := slices.DeleteFunc(slices.Sorted(slices.Values(got)), func(s string) bool { return s == "account" })
			if rest = slices.Compact(rest); !slices.Equal(rest, want) { // of one, two entries may be needed
				t.Errorf("names %q, want %q", rest, want)
			}
		})
	}
}
