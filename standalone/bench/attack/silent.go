package attack

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/limits"
)

const (
	// silentNames are in one Certificate of an issuer whose CA never gives a result: more than challenges may be in flight
	// and held together.
	silentNames = 130
	// manyNames are in each of so many Certificates of an issuer with as many solvers: the most that both may have.
	manyNames, manyNamed = limits.CertificateNames, 2
	// sharing Certificates name one Secret.
	sharing = 2000
)

// silent is an ACME server that takes every challenge and never gives a result.
type silent struct {
	mu     sync.Mutex
	orders [][]byte
	// told are the challenges that are to be validated, by address.
	told map[string]bool
}

// serve answers what is asked of the server at base, with that body of a request (RFC 8555, sections 7.4, 7.5).
func (s *silent) serve(w http.ResponseWriter, base, what string, body []byte) {
	var signed struct {
		Payload string `json:"payload"`
	}
	_ = json.Unmarshal(body, &signed) // what is no JSON has no payload
	payload, _ := base64.RawURLEncoding.DecodeString(signed.Payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, name, _ := strings.Cut(what, "/")
	address := base + "/challenge/" + name
	if kind == "challenge" && len(payload) > 0 {
		s.told[address] = true
	}
	status := "pending"
	if s.told[address] {
		status = "processing"
	}
	challenge := fmt.Sprintf(`{"type":"dns-01","url":%q,"status":%q,"token":"token"}`, address, status)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case kind == "order" && name == "":
		name = fmt.Sprint(len(s.orders))
		s.orders = append(s.orders, newOrder(base, payload))
		w.Header().Set("Location", base+"/order/"+name)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(s.orders[len(s.orders)-1])
	case kind == "order":
		n := 0
		if _, err := fmt.Sscan(name, &n); err != nil || n >= len(s.orders) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(s.orders[n])
	case kind == "authz":
		_, _ = fmt.Fprintf(w, `{"status":"pending","identifier":{"type":"dns","value":%q},"challenges":[%s]}`, name, challenge)
	case kind == "challenge":
		_, _ = fmt.Fprint(w, challenge)
	}
}

// newOrder is the order for the identifiers of a request.
func newOrder(base string, payload []byte) []byte {
	order := struct {
		Status         string              `json:"status"`
		Identifiers    []map[string]string `json:"identifiers"`
		Finalize       string              `json:"finalize"`
		Authorizations []string            `json:"authorizations"`
	}{Status: "pending", Finalize: base + "/finalize"}
	_ = json.Unmarshal(payload, &order) // without identifiers, it has no authorizations
	for _, id := range order.Identifiers {
		order.Authorizations = append(order.Authorizations, base+"/authz/"+id["value"])
	}
	text, _ := json.Marshal(order) //nolint:errchkjson // strings
	return text
}

// crowd are objects of which there are many: names at the silent server, which solver presents, solvers without a
// selector, and Certificates of one Secret.
func (h *hostile) crowd(solver acmev1.ACMEChallengeSolver) (out []client.Object) {
	certificate := func(name, secret, issuer string, names int) {
		crt := &certmanagerv1.Certificate{ObjectMeta: named(name), Spec: certmanagerv1.CertificateSpec{
			SecretName: secret, IssuerRef: cmmeta.IssuerReference{Name: issuer},
			PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm},
		}}
		for n := range names {
			crt.Spec.DNSNames = append(crt.Spec.DNSNames, fmt.Sprintf("%d.%s.%s", n, name, h.name))
		}
		out = append(out, crt)
	}
	for name, solvers := range map[string]int{"silent": 1, "solvers": manyNames} {
		issuer := h.acmeIssuer(name, h.plain+"/silent/"+name+"/", solver)
		for len(issuer.Spec.ACME.Solvers) < solvers {
			issuer.Spec.ACME.Solvers = append(issuer.Spec.ACME.Solvers, solver)
		}
		out = append(out, issuer)
	}
	certificate("silent", "silent-tls", "silent", silentNames)
	for n := range manyNamed {
		name := fmt.Sprint("many-", n)
		certificate(name, name+"-tls", "solvers", manyNames)
	}
	for n := range sharing {
		certificate(fmt.Sprint("sharing-", n), "shared-tls", "silent", 1)
	}
	return out
}

// policies are the answers of a Venafi server: more domains than a policy may have, as many as fit in an answer, and as
// many as it may have, each as long as it may be, of which the last is name.
func policies(name string) (fit, most []byte) {
	of := func(count, size int) []byte {
		domains := make([]string, count)
		for n := range domains {
			domains[n] = fmt.Sprintf("%0*x", size, n)
		}
		text, _ := json.Marshal(map[string]any{"Policy": map[string]any{ //nolint:errchkjson // strings
			"SubjAltNameDnsAllowed": true, "WildcardsAllowed": true, "WhitelistedDomains": append(domains, name),
			"Subject": map[string]any{},
		}})
		return text
	}
	const size, quotes = 5, 3 // quotes and a comma
	return of((limits.VenafiBody-1<<10)/(size+quotes), size), of(limits.PolicyEntries-1, limits.PolicyEntryBytes)
}
