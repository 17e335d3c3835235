package status

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
)

// includeVolumes reads the issuers of the volumes, the latest request for each, and the newest warning about it.
func (s *start) includeVolumes(ctx context.Context, c client.Client, i *inventory.Inventory) (err error) {
	pod := s.volumes[0].Pod
	if s.volumes, err = inventory.PodVolumes(ctx, c, pod.Namespace, pod.Name, []*corev1.Pod{pod}); err != nil {
		return err
	}
	for _, v := range s.volumes {
		if err := includeSigner(ctx, c, i, v.Source.SignerName); err != nil {
			return err
		}
	}
	return nil
}

// Pods explains the certificates of the Pods that a selector takes, in a namespace, or in all for an empty one: a
// report for each volume of a Pod with a certificate of one of our issuers. Unread names the resources that the user
// may not read. Everything is read in pages, with the rights of the role view.
func Pods(ctx context.Context, c client.Client, namespace string, selector labels.Selector, now time.Time) (reports []explain.Report, unread string, err error) {
	pods, err := inventory.Pods(ctx, c, namespace, selector)
	if err != nil || len(pods) == 0 {
		return nil, "", err
	}
	volumes, err := inventory.PodVolumes(ctx, c, namespace, "", pods)
	if err != nil {
		return nil, "", err
	}
	i, err := inventory.Read(ctx, c, inventory.Scope{Namespace: namespace, OnlyIssuers: true})
	if err != nil {
		return nil, "", err
	}
	w := i.Cluster(now)
	for _, v := range volumes {
		unread, v.Unread = v.Unread, "" // the command says it once
		reports = append(reports, w.Pod(v))
	}
	return reports, unread, nil
}
