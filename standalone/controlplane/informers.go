package controlplane

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
)

// metadataInformers gives the garbage collector informers that hold metadata only. kube-controller-manager shares its
// typed informers with the collector; here hardly any other controller has one, and full Secrets would be held for
// nothing.
type metadataInformers struct {
	factory metadatainformer.SharedInformerFactory
}

func newMetadataInformers(client metadata.Interface) metadataInformers {
	return metadataInformers{metadatainformer.NewSharedInformerFactoryWithOptions(client, 0,
		metadatainformer.WithTransform(dropManagedFields))}
}

// ForResource implements informerfactory.InformerFactory. It never fails.
func (m metadataInformers) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	return m.factory.ForResource(r), nil
}

// Start implements informerfactory.InformerFactory.
func (m metadataInformers) Start(stop <-chan struct{}) { m.factory.Start(stop) }

// dropManagedFields saves memory: no controller here reads managed fields.
func dropManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
