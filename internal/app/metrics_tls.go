package app

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/findings"
	"chancery.dev/internal/kube/servingcert"
)

// MetricsTLS says how /metrics is served over TLS. The zero value is plain HTTP.
type MetricsTLS struct {
	// CertFile and KeyFile hold the certificate and its key in PEM form. Changed files are read again.
	CertFile, KeyFile string
	// CipherSuites are names of crypto/tls, for TLS before 1.3; none means those of crypto/tls.
	CipherSuites []string
	// MinVersion is one of VersionTLS10 to VersionTLS13; empty means VersionTLS12.
	MinVersion string
	// Dynamic is a certificate that the process makes, in place of the files.
	Dynamic DynamicServing
}

// DynamicServing is a certificate that the process makes for a server of its own. The zero value is none.
type DynamicServing struct {
	// SecretNamespace and SecretName name the Secret of the CA.
	SecretNamespace, SecretName string
	// DNSNames are the names of the server.
	DNSNames []string
	// Life is how long the certificate is valid.
	Life time.Duration
}

// minLife is the least that DynamicServing.Life may be.
const minLife = time.Hour

// validate checks the values of the flags that begin with prefix.
func (d *DynamicServing) validate(f *findings.Findings, prefix string) {
	if d.SecretName == "" {
		if d.SecretNamespace != "" || len(d.DNSNames) > 0 {
			f.Add(prefix+"ca-secret-name", "has to name a Secret, because another flag of --%s… is set", prefix)
		}
		return
	}
	if len(validation.IsDNS1123Subdomain(d.SecretName)) > 0 {
		f.Add(prefix+"ca-secret-name", "must be the name of a Secret, not %q", d.SecretName)
	}
	f.Namespace(prefix+"ca-secret-namespace", d.SecretNamespace)
	if len(d.DNSNames) == 0 {
		f.Add(prefix+"dns-names", "has to have a name that clients know the server by")
	}
	for _, name := range d.DNSNames {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			f.Add(prefix+"dns-names", "must be DNS names, and not %q", name)
		}
	}
	if d.Life < minLife {
		f.Add(prefix+"leaf-duration", "must be %s or more, not %s", minLife, d.Life)
	}
}

func (c *MetricsTLS) validate(f *findings.Findings) {
	c.Dynamic.validate(f, "metrics-dynamic-serving-")
	if c.CertFile != "" && c.Dynamic.SecretName != "" {
		f.Add("metrics-dynamic-serving-ca-secret-name", "cannot be together with --metrics-tls-cert-file: set one of the two")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		f.Add("metrics-tls-cert-file", "belongs together with --metrics-tls-private-key-file: set both or none")
	} else if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			f.Add("metrics-tls-cert-file", "cannot be served: %w", err)
		}
	}
	if _, err := c.version(); err != nil {
		f.Add("metrics-tls-min-version", "%w", err)
	}
	if _, err := c.suites(); err != nil {
		f.Add("metrics-tls-cipher-suites", "%w", err)
	}
}

func (c *MetricsTLS) version() (uint16, error) {
	versions := map[string]uint16{
		"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	}
	version, known := versions[c.MinVersion]
	if !known {
		return 0, fmt.Errorf("must be one of %s, not %q", strings.Join(slices.Sorted(maps.Keys(versions))[1:], ", "), c.MinVersion)
	}
	return version, nil
}

func (c *MetricsTLS) suites() (ids []uint16, err error) {
	for _, name := range c.CipherSuites {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%q is none of crypto/tls that is safe", name)
		}
		ids = append(ids, tls.CipherSuites()[i].ID)
	}
	return ids, nil
}

// withMetrics returns the ports with the address of /metrics and what /metrics is served by over TLS. What renews the
// certificate is added to the manager. c is valid.
func (c *Config) withMetrics(p ports, m runner, rc *rest.Config, watches *watches) (ports, error) {
	p.metricsAddress = c.MetricsAddress
	files, d := c.MetricsTLS, c.MetricsTLS.Dynamic
	if c.MetricsAddress == "0" || files.CertFile+d.SecretName == "" {
		return p, nil
	}
	p.tls = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	p.tls.MinVersion, _ = files.version()
	p.tls.CipherSuites, _ = files.suites()
	if files.CertFile != "" {
		pair, err := certwatcher.New(files.CertFile, files.KeyFile)
		if err != nil {
			return p, err
		}
		p.tls.GetCertificate = pair.GetCertificate
		return p, m.Add(pair)
	}
	clients, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return p, err
	}
	certificate, err := servingcert.New(servingcert.Options{
		Client: clients, Secret: types.NamespacedName{Namespace: d.SecretNamespace, Name: d.SecretName}, DNSNames: d.DNSNames, Life: d.Life,
		Now: c.Now, AfterFunc: (&controller.Deps{Clock: c.Clock}).AfterFunc, Failed: watches.failed, Log: watches.log.WithName("metrics"),
	})
	if err != nil {
		return p, err
	}
	p.tls.GetCertificate = certificate.GetCertificate
	return p, m.Add(certificate)
}
