package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/rig/dnsserver"
	"chancery.dev/internal/rig/pebble"
	"chancery.dev/internal/rig/port"
)

// acmeRig is a certificate authority that validates for real, and the DNS server that it asks. Both run in this
// process.
type acmeRig struct {
	dns *dnsserver.Server
	ca  *pebble.Server
	// http is where the authority connects for HTTP-01.
	http netip.AddrPort
}

// startRig starts a fresh authority, until ctx ends: Pebble's cost of an order grows with the authorizations that it
// has seen. It neither dawdles nor asks to wait.
func startRig(ctx context.Context) (*acmeRig, error) {
	http, err := port.Free(ctx)
	if err != nil {
		return nil, err
	}
	dns, err := dnsserver.Start(ctx, dnsserver.Config{Zones: []dnsserver.Zone{
		{Name: zone, Wildcard: netip.AddrFrom4([4]byte{127, 0, 0, 1})},
	}})
	if err != nil {
		return nil, err
	}
	ca, err := pebble.Start(ctx, pebble.Options{DNSServer: dns.Addr(), HTTPPort: int(http.Port())})
	return &acmeRig{dns, ca, http}, err
}

func prepareDNS01(ctx context.Context, r *run) (*workload, error) {
	return prepareACME(ctx, r, rfc2136Solver, bareDNS01)
}

// rfc2136Solver makes records by updates of the rig's DNS server.
func rfc2136Solver(rig *acmeRig) acmev1.ACMEChallengeSolver {
	return acmev1.ACMEChallengeSolver{DNS01: &acmev1.DNS01Solver{RFC2136: &acmev1.RFC2136Provider{Nameserver: rig.dns.Addr()}}}
}

func prepareHTTP01(ctx context.Context, r *run) (*workload, error) {
	work, err := prepareACME(ctx, r, func(*acmeRig) acmev1.ACMEChallengeSolver {
		return acmev1.ACMEChallengeSolver{HTTP01: &acmev1.HTTP01Solver{Ingress: &acmev1.HTTP01IngressSolver{}}}
	}, bareHTTP01)
	if err == nil && r.Routes {
		// Nobody follows the routes: the controller itself answers. But without a responder it would make none.
		err = r.plane.client.Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "cert-manager", Name: "chancery-responder", Labels: map[string]string{discoveryv1.LabelServiceName: "chancery-responder"},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		})
		work.arguments = append(work.arguments, "--acme-http01-responder=cert-manager/chancery-responder")
	}
	return work, err
}

// prepareACME makes the ClusterIssuer of a fresh authority. A bare client may do the same against one of its own.
func prepareACME(
	ctx context.Context, r *run, solver func(*acmeRig) acmev1.ACMEChallengeSolver, bare func(context.Context, *run) (pace, error),
) (*workload, error) {
	rig, err := startRig(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the ACME server: %w", err)
	}
	work := certificates(acmeIssuer, certmanagerv1.ECDSAKeyAlgorithm)
	work.bare, work.barely, work.dns = bare, "a bare ACME client issues", rig.dns
	dns := rig.dns.Addr()
	work.arguments = []string{
		"--dns01-recursive-nameservers=" + dns,
		"--dns01-authoritative-port=" + strconv.Itoa(rig.dns.Port()),
		"--acme-account-key-algorithm=ECDSA", // as the bare loop has it
		"--acme-http01-solver-nameservers=" + dns,
		"--http01-listen-address=" + rig.http.String(),
		"--http01-self-check-port=" + strconv.Itoa(int(rig.http.Port())),
		"--issuer-egress-allow=0.0.0.0/0,127.0.0.0/8", // the hosts that are checked are on this machine
	}
	if r.other {
		work.arguments = append(work.arguments, "--dns01-recursive-nameservers-only=true") // it knows no other port than 53
	}
	return work, r.plane.client.Create(ctx, &certmanagerv1.ClusterIssuer{
		ObjectMeta: metav1.ObjectMeta{Name: acmeIssuer},
		Spec: certmanagerv1.IssuerSpec{ACME: &acmev1.ACMEIssuer{
			Server:     rig.ca.DirectoryURL,
			CABundle:   rig.ca.TLSBundle,
			PrivateKey: cmmeta.SecretKeySelector{Name: "bench-acme-account"},
			Solvers:    []acmev1.ACMEChallengeSolver{solver(rig)},
		}},
	})
}
