package controlplane

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

const (
	adminUser      = "kubernetes-admin"
	adminGroup     = "system:masters"
	frontProxyUser = "front-proxy-client"
)

// identityIssuer makes clients of the API server at host, known by certificates of ca.
type identityIssuer struct {
	ca   authority
	host string // URL
}

// ClientFor returns the configuration of a client that the API server knows as user with groups (and
// system:authenticated, which it adds itself). The client has the rights that RBAC gives that user. It is not
// throttled.
func (cp *ControlPlane) ClientFor(user string, groups ...string) (*rest.Config, error) {
	return cp.issuer.client(user, groups...)
}

// ServiceAccount returns the user name and the groups by which RBAC knows a service account, for ClientFor. A subject
// of kind ServiceAccount in a binding matches this user name, whatever way it authenticated.
func ServiceAccount(namespace, name string) (user string, groups []string) {
	return "system:serviceaccount:" + namespace + ":" + name,
		[]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
}

// ClientFromDataDir is ClientFor for a control plane that another process runs, or will run again, in dir: it needs
// the right to read the CA's key there. The address is the one of the last start.
func ClientFromDataDir(dir, user string, groups ...string) (*rest.Config, error) {
	d := &dataDir{root: dir}
	certs, err := cert.CertsFromFile(d.path("pki", "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("no control plane has run in the data directory %s yet (start one with `chancery-standalone up`): %w", dir, err)
	}
	key, err := d.loadKey("ca.key")
	if err != nil {
		return nil, err
	}
	host, err := d.lastAddress()
	if err != nil {
		return nil, err
	}
	return identityIssuer{ca: authority{cert: certs[0], key: key}, host: "https://" + host}.client(user, groups...)
}

func (i identityIssuer) client(user string, groups ...string) (*rest.Config, error) {
	if user == "" {
		return nil, errors.New("a client certificate needs a user name")
	}
	certPEM, keyPEM, err := i.ca.issue(clientTemplate(user, groups), time.Now())
	if err != nil {
		return nil, err
	}
	caPEM, err := cert.EncodeCertificates(i.ca.cert)
	if err != nil {
		return nil, fmt.Errorf("encode the CA certificate: %w", err)
	}
	return &rest.Config{
		Host:            i.host,
		TLSClientConfig: rest.TLSClientConfig{CAData: caPEM, CertData: certPEM, KeyData: keyPEM},
		QPS:             -1, // the API server's priority and fairness does this better
	}, nil
}

// lastAddress returns host and port of the API server's last start in this directory.
func (d *dataDir) lastAddress() (string, error) {
	a, err := readAddress(d.path("address"))
	if err != nil {
		return "", fmt.Errorf("no control plane has run in the data directory %s yet (start one with `chancery-standalone up`): %w", d.root, err)
	}
	return a.String(), nil
}
