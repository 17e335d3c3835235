package controlplane

import (
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
)

// KubernetesVersion is the release of Kubernetes that is compiled in; go.mod pins it.
const KubernetesVersion = "v1.37.2"

// release reports KubernetesVersion also in a binary that was linked without Kubernetes' -X flags (go run, go install,
// go test), where Kubernetes would call itself v0.0.0-master and clients would refuse it.
type release struct {
	basecompatibility.MutableEffectiveVersion
}

// Info returns what /version serves.
func (r release) Info() *apimachineryversion.Info {
	info := r.MutableEffectiveVersion.Info()
	if info != nil {
		info.GitVersion = KubernetesVersion
	}
	return info
}

// newRegistry returns the registry of versions and feature gates that kube-apiserver is to use in place of its
// process-wide one.
func newRegistry() (basecompatibility.ComponentGlobalsRegistry, error) {
	registry := basecompatibility.NewComponentGlobalsRegistry()
	err := registry.Register(basecompatibility.DefaultKubeComponent,
		release{compatibility.DefaultBuildEffectiveVersion()}, utilfeature.DefaultMutableFeatureGate)
	return registry, err
}
