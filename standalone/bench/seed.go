package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

const (
	// seedBatch is how many objects go into etcd in one transaction; etcd takes 128 at most.
	seedBatch = 120
	// seedBytes bounds a transaction too: etcd takes 1.5 MiB.
	seedBytes = 1 << 20
	// unrelatedSize is what a Secret weighs that is none of ours, in bytes.
	unrelatedSize = 10_000
	// unrelatedNamespace holds them.
	unrelatedNamespace = "unrelated"
)

// seeder writes objects into the storage of the control plane, past the API server: ten thousand certificates in
// seconds, as they would be found after years. The API server sees them by its own watch.
type seeder struct {
	etcd *clientv3.Client
	ops  []clientv3.Op
	size int
}

func newSeeder(p *plane) (*seeder, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(p.dir, "data", "run", "etcd.sock")}})
	if err != nil {
		return nil, fmt.Errorf("reach etcd: %w", err)
	}
	return &seeder{etcd: etcd}, nil
}

// put stores an object below /registry, where the API server looks.
func (s *seeder) put(ctx context.Context, directory string, o *unstructured.Unstructured) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	s.ops = append(s.ops, clientv3.OpPut(path.Join("/registry", directory, o.GetNamespace(), o.GetName()), string(text)))
	if s.size += len(text); len(s.ops) < seedBatch && s.size < seedBytes {
		return nil
	}
	return s.flush(ctx)
}

func (s *seeder) flush(ctx context.Context) error {
	if len(s.ops) == 0 {
		return nil
	}
	_, err := s.etcd.Txn(ctx).Then(s.ops...).Commit()
	s.ops, s.size = nil, 0
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	return nil
}

// close writes what is left.
func (s *seeder) close(ctx context.Context) error { return errors.Join(s.flush(ctx), s.etcd.Close()) }

// issuedObjects are what there is of one certificate that is in order.
type issuedObjects struct{ certificate, request, secret *unstructured.Unstructured }

// sample reads what the controller has made of a Certificate, managed fields included.
func (r *run) sample(ctx context.Context, name string) (issuedObjects, error) {
	read := func(kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		err := r.plane.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		o.SetResourceVersion("") // it is not stored
		return o, err
	}
	group := certmanagerv1.SchemeGroupVersion()
	var s issuedObjects
	var errs [3]error
	s.certificate, errs[0] = read(group.WithKind(certmanagerv1.CertificateKind), name)
	s.request, errs[1] = read(group.WithKind(certmanagerv1.CertificateRequestKind), name+"-1")
	s.secret, errs[2] = read(corev1.SchemeGroupVersion.WithKind("Secret"), name+"-tls")
	if err := errors.Join(errs[:]...); err != nil {
		return s, err
	}
	return s, s.renewAtTwoThirds()
}

// renewAtTwoThirds renews the certificate when every other controller would, too: our own choice depends on the
// UID.
func (s issuedObjects) renewAtTwoThirds() error {
	crt := &certmanagerv1.Certificate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.certificate.Object, crt); err != nil {
		return err
	}
	from, to := crt.Status.NotBefore, crt.Status.NotAfter
	if from == nil || to == nil {
		return fmt.Errorf("the Certificate %s has no validity in its status", crt.Name)
	}
	at := to.Add(-to.Sub(from.Time) / 3).Truncate(time.Second)
	return unstructured.SetNestedField(s.certificate.Object, at.UTC().Format(time.RFC3339), "status", "renewalTime")
}

// copyTo makes the same objects for another Certificate, which has the same key and names: nobody looks at that.
func (s issuedObjects) copyTo(ctx context.Context, to *seeder, name string) error {
	crt, request, secret := s.certificate.DeepCopy(), s.request.DeepCopy(), s.secret.DeepCopy()
	for _, o := range []*unstructured.Unstructured{crt, request, secret} {
		o.SetUID(uuid.NewUUID())
	}
	crt.SetName(name)
	secret.SetName(name + "-tls")
	request.SetName(name + "-1")
	for _, o := range []*unstructured.Unstructured{request, secret} {
		annotations := o.GetAnnotations()
		annotations[certmanagerv1.CertificateNameAnnotation] = name
		o.SetAnnotations(annotations)
	}
	owners := request.GetOwnerReferences()
	for i := range owners {
		owners[i].Name, owners[i].UID = crt.GetName(), crt.GetUID()
	}
	request.SetOwnerReferences(owners)
	if err := unstructured.SetNestedField(crt.Object, secret.GetName(), "spec", "secretName"); err != nil {
		return err
	}
	return errors.Join(
		to.put(ctx, "secrets", secret),
		to.put(ctx, certmanagerv1.GroupName+"/certificaterequests", request),
		to.put(ctx, certmanagerv1.GroupName+"/certificates", crt),
	)
}

// addUnrelated makes Secrets such as releases of others are kept in.
func (r *run) addUnrelated(ctx context.Context) error {
	body := make([]byte, unrelatedSize)
	if _, err := rand.Read(body); err != nil {
		return err
	}
	if err := r.plane.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: unrelatedNamespace}}); err != nil {
		return err
	}
	one := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"release": base64.StdEncoding.EncodeToString(body)},
	}}
	one.SetNamespace(unrelatedNamespace)
	one.SetName("release")
	one.SetLabels(map[string]string{"owner": "somebody"})
	if err := r.plane.client.Create(ctx, one); err != nil {
		return err
	}
	return r.seedCopies(ctx, "secrets", one, r.Unrelated-1, func(i int, other *unstructured.Unstructured) error {
		other.SetName("release-" + strconv.Itoa(i))
		return nil
	})
}

// seedCopies stores copies of an object that the API server has accepted; rename gives each a name.
func (r *run) seedCopies(
	ctx context.Context, directory string, one *unstructured.Unstructured, count int, rename func(i int, other *unstructured.Unstructured) error,
) error {
	to, err := newSeeder(r.plane)
	if err != nil {
		return err
	}
	one.SetResourceVersion("") // it is not stored
	for i := range count {
		other := one.DeepCopy()
		other.SetUID(uuid.NewUUID())
		if err = errors.Join(rename(i, other), to.put(ctx, directory, other)); err != nil {
			break
		}
	}
	return errors.Join(err, to.close(ctx))
}

// seededName is that of Certificate i of those that were not issued but copied.
func seededName(i int) string { return "seeded-" + strconv.Itoa(i) }
