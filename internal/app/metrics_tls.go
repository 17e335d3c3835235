package app

import (
	"crypto/tls"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// MetricsTLS says how /metrics is served over TLS. The zero value is plain HTTP.
type MetricsTLS struct {
	// CertFile and KeyFile hold the certificate and its key in PEM form. Changed files are read again.
	CertFile, KeyFile string
	// CipherSuites are names of crypto/tls, for TLS before 1.3; none means those of crypto/tls.
	CipherSuites []string
	// MinVersion is one of VersionTLS10 to VersionTLS13; empty means VersionTLS12.
	MinVersion string
}

func (c *MetricsTLS) validate(f *findings) {
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

// apply sets the options of the server. c is valid.
func (c *MetricsTLS) apply(o *metricsserver.Options) {
	if c.CertFile == "" {
		return
	}
	o.SecureServing = true
	o.CertDir, o.CertName = filepath.Split(c.CertFile)
	o.KeyName = c.KeyFile
	if relative, err := filepath.Rel(o.CertDir, c.KeyFile); err == nil {
		o.KeyName = relative
	}
	o.TLSOpts = append(o.TLSOpts, func(conf *tls.Config) {
		conf.MinVersion, _ = c.version()
		conf.CipherSuites, _ = c.suites()
		conf.NextProtos = []string{"h2", "http/1.1"}
	})
}
