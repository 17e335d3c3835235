package inspect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/pki"
	"chancery.dev/kubectl/internal/plugin"
)

// secret reports on a Secret.
func (o *options) secret(ctx context.Context, name string) (*Report, error) {
	c, namespace, err := plugin.ConnectIn(o.flags)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, err
	}
	r := &Report{Source: explain.Name("Secret", namespace, name), now: time.Now()}
	crt, err := ownerOf(ctx, c, secret)
	switch {
	case err != nil:
		r.add(aboutNames, Unknown, "", "the Certificate of the Secret cannot be read: %v", err)
	case crt == nil:
		r.add(aboutNames, None, "", "no Certificate asks for this Secret")
	default:
		r.Certificate = explain.Name(certmanagerv1.CertificateKind, crt.Namespace, crt.Name)
	}
	j := &judged{at: r.now}
	if j.certs, err = pki.DecodeChain(secret.Data[cmmeta.TLSCertKey]); err != nil {
		help := "See which Secrets have certificates: kubectl chancery list -o wide"
		if crt != nil {
			help = "kubectl chancery status " + crt.Name
		}
		r.add(aboutIssued, Wrong, help, "tls.crt cannot be read: %v", err)
		return r, nil
	}
	if text := secret.Data[cmmeta.TLSCAKey]; len(text) > 0 {
		if j.roots, err = pki.DecodeBundle(text); err != nil {
			r.add(aboutTrust, Wrong, "Have the certificate renewed: kubectl chancery renew", "ca.crt cannot be read: %v", err)
		}
		j.rootsOf = "ca.crt"
	}
	if crt != nil {
		r.names(&crt.Spec, j.leaf())
	}
	r.key(secret.Data[cmmeta.TLSPrivateKeyKey], j.leaf())
	if err := o.judge(ctx, r, j); err != nil {
		return nil, err
	}
	if crt != nil {
		r.renewal(ctx, c, o, crt, j.leaf())
	}
	return r, nil
}

// ownerOf returns the Certificate that a Secret was made for; nil if there is none.
func ownerOf(ctx context.Context, c client.Reader, secret *corev1.Secret) (*certmanagerv1.Certificate, error) {
	all := &certmanagerv1.CertificateList{}
	if err := c.List(ctx, all, client.InNamespace(secret.Namespace)); err != nil {
		return nil, err
	}
	var owner *certmanagerv1.Certificate
	for i := range all.Items {
		crt := &all.Items[i]
		if crt.Spec.SecretName == secret.Name && (owner == nil || crt.Name == secret.Annotations[certmanagerv1.CertificateNameAnnotation]) {
			owner = crt
		}
	}
	return owner, nil
}

// chain reports on what a server sends, or a file or a Secret has.
func (o *options) chain(ctx context.Context, from string) (*Report, error) {
	if name, is := strings.CutPrefix(from, "secret/"); is {
		return o.secret(ctx, name)
	}
	r := &Report{Source: from, now: time.Now()}
	j := &judged{at: r.now}
	var err error
	if _, missing := os.Stat(from); from == "-" || missing == nil {
		var text []byte
		if text, err = o.read(from); err == nil {
			j.certs, err = pki.DecodeChain(text)
		}
	} else {
		j.serves = true
		j.certs, err = o.served(ctx, from)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	if host := o.hostOf(from, j.serves); host != "" {
		if err := j.leaf().VerifyHostname(host); err != nil {
			r.add(aboutNames, Wrong, "", "%v", err)
		} else {
			r.add(aboutNames, OK, "", "it is for %s", host)
		}
	}
	return r, o.judge(ctx, r, j)
}

// hostOf is the host name that a certificate must have; empty for that of a file.
func (o *options) hostOf(address string, served bool) string {
	if o.serverName != "" || !served {
		return o.serverName
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// served returns the certificates that a server sends.
func (o *options) served(ctx context.Context, address string) ([]*x509.Certificate, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "443")
	}
	ctx, stop := context.WithTimeout(ctx, o.timeout)
	defer stop()
	var certs []*x509.Certificate
	dialer := &tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, //nolint:gosec // the certificates are judged afterwards
		ServerName: o.hostOf(address, true),
		// The certificates come before the server asks for those of the client, and refuses a client without.
		VerifyConnection: func(s tls.ConnectionState) error {
			certs = s.PeerCertificates
			return nil
		},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("there is no such file, and no server that sends certificates: %w", err)
	}
	return certs, nil
}

// judge adds the checks of a chain.
func (o *options) judge(ctx context.Context, r *Report, j *judged) error {
	if o.rootsFile != "" {
		text, err := o.read(o.rootsFile)
		if err == nil {
			j.roots, err = pki.DecodeBundle(text)
		}
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		j.rootsOf = o.rootsFile
	}
	if j.roots == nil {
		j.rootsOf = "the roots of this computer"
	}
	for _, c := range j.certs {
		r.Certificates = append(r.Certificates, certificateOf(c))
	}
	r.validity(j)
	r.chained(ctx, j.certs)
	if o.offline {
		r.trusted(j)
		r.add(aboutRevocation, Unknown, "", "nobody was asked, because of --no-network")
		return nil
	}
	w := newWeb(o.egress(), o.timeout, r.now)
	w.complete(ctx, j)
	r.trusted(j)
	r.revocation(ctx, w, j)
	return nil
}
