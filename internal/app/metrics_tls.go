package app

import (
	"crypto/tls"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"chancery.dev/internal/controller"
	"chancery.dev/internal/servingcert"
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
func (d *DynamicServing) validate(f *findings, prefix string) {
	if d.SecretName == "" {
		if d.SecretNamespace != "" || len(d.DNSNames) > 0 {
			f.add(prefix+"ca-secret-name", "has to name a Secret, because another flag of --%s… is set", prefix)
		}
		return
	}
	if len(validation.IsDNS1123Subdomain(d.SecretName)) > 0 {
		f.add(prefix+"ca-secret-name", "must be the name of a Secret, not %q", d.SecretName)
	}
	f.namespace(prefix+"ca-secret-namespace", d.SecretNamespace)
	if len(d.DNSNames) == 0 {
		f.add(prefix+"dns-names", "has to have a name that clients know the server by")
	}
	for _, name := range d.DNSNames {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			f.add(prefix+"dns-names", "must be DNS names, and not %q", name)
		}
	}
	if d.Life < minLife {
		f.add(prefix+"leaf-duration", "must be %s or more, not %s", minLife, d.Life)
	}
}

func (c *MetricsTLS) validate(f *findings) {
	c.Dynamic.validate(f, "metrics-dynamic-serving-")
	if c.CertFile != "" && c.Dynamic.SecretName != "" {
		f.add("metrics-dynamic-serving-ca-secret-name", "cannot be together with --metrics-tls-cert-file: set one of the two")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		f.add("metrics-tls-cert-file", "belongs together with --metrics-tls-private-key-file: set both or none")
	} else if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			f.add("metrics-tls-cert-file", "cannot be served: %w", err)
		}
	}
	if _, err := c.version(); err != nil {
		f.add("metrics-tls-min-version", "%w", err)
	}
	if _, err := c.suites(); err != nil {
		f.add("metrics-tls-cipher-suites", "%w", err)
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

// apply sets the options of the server; certificate is that of Dynamic, if there is one. c is valid.
func (c *MetricsTLS) apply(o *metricsserver.Options, certificate *servingcert.Certificate) {
	if c.CertFile == "" && certificate == nil {
		return
	}
	o.SecureServing = true
	if certificate == nil {
		o.CertDir, o.CertName = filepath.Split(c.CertFile)
		o.KeyName = c.KeyFile
		if relative, err := filepath.Rel(o.CertDir, c.KeyFile); err == nil {
			o.KeyName = relative
		}
	}
	o.TLSOpts = append(o.TLSOpts, func(conf *tls.Config) {
		conf.MinVersion, _ = c.version()
		conf.CipherSuites, _ = c.suites()
		conf.NextProtos = []string{"h2", "http/1.1"}
		if certificate != nil {
			conf.GetCertificate = certificate.GetCertificate
		}
	})
}

// serveMetrics sets the options of the server of /metrics. The certificate, if there is one, has to run with it.
func (c *Config) serveMetrics(o *metricsserver.Options, rc *rest.Config, watches *watches) (certificate *servingcert.Certificate, err error) {
	o.BindAddress = c.MetricsAddress
	if d := c.MetricsTLS.Dynamic; d.SecretName != "" && c.MetricsAddress != "0" {
		clients, err := kubernetes.NewForConfig(rc)
		if err != nil {
			return nil, err
		}
		certificate, err = servingcert.New(servingcert.Options{
			Client: clients, Secret: types.NamespacedName{Namespace: d.SecretNamespace, Name: d.SecretName}, DNSNames: d.DNSNames, Life: d.Life,
			Now: c.Now, AfterFunc: (&controller.Deps{Clock: c.Clock}).AfterFunc, Failed: watches.failed, Log: watches.log.WithName("metrics"),
		})
		if err != nil {
			return nil, err
		}
	}
	c.MetricsTLS.apply(o, certificate)
	return certificate, nil
}
