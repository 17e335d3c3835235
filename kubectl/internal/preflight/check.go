package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/acme"
	acmeclient "chancery.dev/internal/acme/client"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/preflight"
	"chancery.dev/internal/pki"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/http01"
	"chancery.dev/kubectl/internal/plugin"
)

// patience is how long one question to DNS, a CA or a route may take.
const patience = 3 * time.Second

// checker checks Certificates, one after the other.
type checker struct {
	client   client.Client
	o        *options
	resolver *dns01.Resolver
	dialer   *http01.Dialer
	progress *plugin.Progress

	certificate *certmanagerv1.Certificate
	issuer      certmanagerv1.GenericIssuer
	findings    []preflight.Finding
}

func newChecker(c client.Client, o *options, progress *plugin.Progress) (*checker, error) {
	servers := o.nameservers
	if len(servers) == 0 {
		servers = dns01.SystemNameservers("/etc/resolv.conf")
	}
	resolver, err := dns01.NewResolver(dns01.Options{Nameservers: servers, AuthoritativePort: o.ports.dns, Timeout: patience})
	if err != nil {
		return nil, fmt.Errorf("--dns01-recursive-nameservers: %w", err)
	}
	plain := slices.DeleteFunc(slices.Clone(o.nameservers), func(s string) bool { return strings.HasPrefix(s, "https://") })
	o.nameservers = servers
	return &checker{client: c, o: o, resolver: resolver, dialer: http01.NewDialer(plain, nil, nil), progress: progress}, nil
}

func (k *checker) add(f ...preflight.Finding) { k.findings = append(k.findings, f...) }

// unread is the finding about something that could not be read.
func unread(check, subject string, err error) preflight.Finding {
	return preflight.Finding{Check: check, Subject: subject, Outcome: preflight.NotChecked, Message: err.Error()}
}

// check makes the report of one Certificate.
func (k *checker) check(ctx context.Context, in input) preflight.Report {
	k.findings, k.issuer = nil, nil
	if in.manifest != nil {
		k.add(dryRun(ctx, k.client, &in))
	}
	k.certificate = in.certificate
	k.add(k.secret(ctx))
	if k.findIssuer(ctx) {
		switch spec := k.issuer.GetSpec(); {
		case k.certificate.Spec.PrivateKey.OnlySigns() && spec.CA == nil && spec.SelfSigned == nil:
			k.add(preflight.Finding{
				Check: "limits", Subject: "key", Outcome: preflight.Failed, Message: "an issuer of this type takes no ML-DSA keys",
				WhatToDo: "Take a CA or SelfSigned issuer, or another spec.privateKey.algorithm",
			})
		case spec.ACME != nil:
			k.acme(ctx, spec.ACME)
		case spec.CA != nil:
			k.add(k.authority(ctx, spec.CA))
		case spec.SelfSigned != nil:
			k.add(preflight.Finding{Check: "limits", Outcome: preflight.Warning, Message: "a self-signed certificate is trusted only where it is installed by hand"})
		default:
			k.add(preflight.Finding{Check: "limits", Outcome: preflight.NotChecked, Message: "the role or zone at the CA decides on names, keys and the duration: see its settings"})
		}
	}
	tried := func(f preflight.Finding) bool { return f.Check == checkCredentials }
	if k.o.credentials && !slices.ContainsFunc(k.findings, tried) {
		k.add(preflight.Finding{Check: checkCredentials, Outcome: preflight.NotChecked, Message: "no solver of an ACME issuer writes DNS records for the names"})
	}
	if k.o.staging != "" {
		k.add(k.stage(ctx))
	}
	return preflight.Report{Certificate: k.certificate.Name, Namespace: k.certificate.Namespace, Findings: k.findings}
}

// secret looks for other Certificates that write the same Secret.
func (k *checker) secret(ctx context.Context) preflight.Finding {
	f := preflight.Finding{Check: "secret", Outcome: preflight.OK, Message: "no other Certificate names the Secret " + k.certificate.Spec.SecretName}
	list := &certmanagerv1.CertificateList{}
	if err := k.client.List(ctx, list, client.InNamespace(k.certificate.Namespace)); err != nil {
		return unread(f.Check, "", err)
	}
	for i := range list.Items {
		if other := &list.Items[i]; other.Name != k.certificate.Name && other.Spec.SecretName == k.certificate.Spec.SecretName {
			f.Outcome = preflight.Failed
			f.Message = fmt.Sprintf("Certificate %s names the Secret %s, too", other.Name, k.certificate.Spec.SecretName)
			f.WhatToDo = preflight.Cure(cause.SecretShared)
		}
	}
	return f
}

// findIssuer reads the issuer of the Certificate, and judges it.
func (k *checker) findIssuer(ctx context.Context) bool {
	ref := k.certificate.Spec.IssuerRef
	if ref.IsExternal() {
		k.add(preflight.Finding{Check: "issuer", Outcome: preflight.NotChecked,
			Message: fmt.Sprintf("%s of the group %s belongs to another controller", ref.KindOrDefault(), ref.Group)})
		return false
	}
	k.issuer = certmanagerv1.NewIssuer(ref, k.certificate.Namespace)
	name := explain.Name(ref.KindOrDefault(), k.issuer.GetNamespace(), ref.Name)
	err := k.client.Get(ctx, client.ObjectKeyFromObject(k.issuer), k.issuer)
	switch {
	case apierrors.IsNotFound(err):
		k.add(preflight.Finding{Check: "issuer", Outcome: preflight.Failed, Message: name + " does not exist",
			WhatToDo: k.issuerMissing(ctx, name)})
	case err != nil:
		k.add(unread("issuer", "", err))
	default:
		k.add(preflight.Issuer(name, k.issuer))
	}
	return err == nil
}

// issuerMissing is what helps where there is no such issuer: it may be one of the other kind.
func (k *checker) issuerMissing(ctx context.Context, name string) string {
	ref, scene := k.certificate.Spec.IssuerRef, cause.Scene{Cause: cause.New(cause.IssuerMissing, "", name, "")}
	if ref.KindOrDefault() == cmmeta.DefaultIssuerKind && k.client.Get(ctx, client.ObjectKey{Name: ref.Name}, &certmanagerv1.ClusterIssuer{}) == nil {
		scene.OtherKind = cmmeta.ClusterIssuerKind
	}
	return scene.Cure()
}

// acme checks what holds for ACME issuers.
func (k *checker) acme(ctx context.Context, spec *acmev1.ACMEIssuer) {
	k.add(preflight.Names(&k.certificate.Spec))
	proofs, solvers := preflight.Proofs(k.certificate, spec)
	k.add(solvers...)
	directory := k.directory(ctx, spec)
	ca := preflight.Authority{}
	if directory != nil {
		ca.Identities = directory.Meta.CAAIdentities
	}
	if known := k.issuer.GetStatus().ACME; known != nil {
		ca.Account = known.URI
	}
	zones := map[string]bool{} // that were asked, and those with a solver whose credentials were tried
	for _, p := range proofs {
		k.progress.Step("check %s", p.Display())
		zone := ""
		switch {
		case p.Address:
		case len(spec.Solvers) == 0: // a CA that asks for no proof needs no zone
			k.caa(ctx, p, ca)
		default:
			zone = k.dns(ctx, p, ca, zones)
		}
		if tested := zone + " " + p.Why; k.o.credentials && p.Solver.DNS01 != nil && !zones[tested] {
			zones[tested] = true
			k.add(k.credentials(ctx, p))
		}
		switch p.Type {
		case acmev1.ChallengeTypeHTTP01:
			k.add(k.http(ctx, p))
		case acmev1.ChallengeTypeTLSALPN01:
			k.add(k.handshake(ctx, p))
		default: // nobody has to reach the name
		}
	}
	k.limits(ctx, spec)
}

// directory asks the CA for its directory, and judges the profile.
func (k *checker) directory(ctx context.Context, spec *acmev1.ACMEIssuer) *acme.Directory {
	transport, err := acmeclient.NewHTTPClient(acmeclient.HTTPOptions{CABundle: spec.CABundle, InsecureSkipVerify: spec.SkipTLSVerify})
	if err != nil {
		k.add(unread("CA", "", err))
		return nil
	}
	transport.Timeout = 3 * patience
	ca, err := acmeclient.New(acmeclient.Options{DirectoryURL: spec.Server, HTTPClient: transport, UserAgent: "kubectl-chancery"})
	if err != nil {
		k.add(unread("CA", "", err))
		return nil
	}
	directory, err := ca.Directory(ctx)
	if err != nil {
		k.add(unread("CA", "", fmt.Errorf("the directory cannot be read from this machine: %w", err)))
		return nil
	}
	profile := preflight.Profile(k.certificate, spec)
	f := preflight.Finding{Check: "profile", Outcome: preflight.OK, Message: "no profile is asked for"}
	if profile != "" {
		f.Message = "the CA has the profile " + profile
	}
	if err := directory.CheckProfile(profile); err != nil {
		f.Outcome, f.Message = preflight.Failed, err.Error()
		f.WhatToDo = "Remove the profile: the CA has none"
		if len(directory.Meta.Profiles) > 0 {
			f.WhatToDo = "Choose one that the CA has: " + strings.Join(sortedKeys(directory.Meta.Profiles), ", ")
		}
	}
	k.add(f)
	return directory
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// limits judges the limits of the CA by the objects in the cluster: in all namespaces, or only in the Certificate's, if
// the user may read no more.
func (k *checker) limits(ctx context.Context, spec *acmev1.ACMEIssuer) {
	ref := k.certificate.Spec.IssuerRef
	orders := &acmev1.OrderList{}
	if err := k.list(ctx, orders); err != nil {
		k.add(unread("account", "", err))
	} else {
		k.add(preflight.Orders(orders.Items, ref))
	}
	l := preflight.Limits{Now: time.Now(), Registered: registered}
	requests := &certmanagerv1.CertificateRequestList{}
	if _, production := preflight.OfLetsEncrypt(spec.Server); production {
		if err := k.list(ctx, requests); err != nil {
			k.add(unread("limits", "rate", err))
		}
	}
	for i := range requests.Items {
		r := &requests.Items[i]
		if !r.Spec.IssuerRef.Equivalent(ref) {
			continue
		}
		if cert, err := pki.DecodeCertificate(r.Status.Certificate); err == nil {
			names := slices.Clone(cert.DNSNames)
			for _, ip := range cert.IPAddresses {
				names = append(names, ip.String())
			}
			l.Issued = append(l.Issued, preflight.Issued{Names: names, At: r.CreationTimestamp.Time})
		}
	}
	k.add(l.Judge(k.certificate, spec)...)
}

// list lists objects of all namespaces if the issuer is for all, and the user may; else of the Certificate's namespace.
func (k *checker) list(ctx context.Context, list client.ObjectList) error {
	if _, everywhere := k.issuer.(*certmanagerv1.ClusterIssuer); everywhere {
		if err := k.client.List(ctx, list); !apierrors.IsForbidden(err) {
			return err
		}
	}
	return k.client.List(ctx, list, client.InNamespace(k.certificate.Namespace))
}

// registered is the domain that somebody has registered and that a name is in.
func registered(name string) string {
	name = strings.TrimPrefix(name, "*.")
	if domain, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return domain
	}
	return name
}
