package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the name of the cluster, user and context in every kubeconfig written here.
const contextName = "chancery"

// WriteKubeconfig writes a kubeconfig for the client c, which must carry its certificates as data: atomically, mode
// 0600. It refuses to replace a file that holds other clusters.
func WriteKubeconfig(path string, c *rest.Config) error {
	if err := refuseForeignKubeconfig(path); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	config.CurrentContext = contextName
	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return cannotWriteKubeconfig(path, err)
	}
	if err := writeFileAtomic(path, encoded); err != nil {
		return cannotWriteKubeconfig(path, err)
	}
	return nil
}

func cannotWriteKubeconfig(path string, err error) error {
	return fmt.Errorf("the kubeconfig %s cannot be written: %w: choose another path with --kubeconfig-out", path, err)
}

// refuseForeignKubeconfig protects the user's own kubeconfig from a slip of --kubeconfig-out.
func refuseForeignKubeconfig(path string) error {
	existing, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s exists and is not a kubeconfig of Chancery (%w): choose another path with --kubeconfig-out", path, err)
	}
	for name := range existing.Clusters {
		if name != contextName {
			return fmt.Errorf("the kubeconfig %s holds the cluster %q and would be overwritten: choose another path with --kubeconfig-out",
				path, name)
		}
	}
	return nil
}

// prepareKubeconfig resolves the path of the kubeconfig and removes the one of the last run: it appears again only when
// the control plane is ready, so its appearance is a signal.
func prepareKubeconfig(path string, d *dataDir) (string, error) {
	if path == "" {
		path = d.path("kubeconfig")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", cannotWriteKubeconfig(path, err)
	}
	if err := refuseForeignKubeconfig(path); err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", cannotWriteKubeconfig(path, err)
	}
	return path, nil
}
