// Package servingcert makes the certificates of this process's own servers, if the user provides no certificate. A
// separate CA signs these certificates. The CA is in a Secret that all replicas share. The first replica makes the CA,
// and any replica renews this CA after two thirds of the CA's life. The package keeps a server's certificate in memory
// only, and replaces the certificate while the server runs. The Secret has the data keys and the annotation that the CA
// injector needs to take the Secret as a source (spec §8).
//
// The process needs the rights to get, list, watch and patch the Secret, by its name. It also needs the right to create
// Secrets in its namespace, unless the Secret exists already: an empty Secret is enough.
package servingcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/pki"
)

const (
	// DefaultLife is how long a server's certificate is valid.
	DefaultLife = 7 * 24 * time.Hour
	// retry is when a failure is tried again.
	retry = 10 * time.Second
	// managedBy and keeper are the label of a Secret whose CA is made and renewed here, as cert-manager labels it.
	managedBy = "app.kubernetes.io/managed-by"
	keeper    = "cert-manager-webhook"
)

// Options are what a Certificate is made with.
type Options struct {
	Client kubernetes.Interface
	// Secret holds the CA.
	Secret types.NamespacedName
	// DNSNames are the names of the server.
	DNSNames []string
	// Life is how long the server's certificate is valid; 0 means DefaultLife.
	Life time.Duration
	// Now and AfterFunc are the clock.
	Now       func() time.Time
	AfterFunc func(d time.Duration, f func()) (stop func())
	// Trust, if set, is called with the CAs to trust, in PEM, at the start and whenever they change. It MUST return an
	// error if clients may not trust them yet; then it is called again. A new CA signs only after Trust's success.
	Trust func(ctx context.Context, bundle []byte) error
	// Failed, if it is set, is told what is wrong with the watch of the Secret.
	Failed toolscache.WatchErrorHandlerWithContext
	Log    logr.Logger
}

// Certificate keeps the certificate of a server and its CA while Start runs. All replicas run it, not only the leader.
type Certificate struct {
	o       Options
	secrets toolscache.SharedIndexInformer
	news    chan struct{}
	serving atomic.Pointer[serving]

	// known is the last CA that was read, told is the last bundle that Trust has taken.
	known *authority
	told  []byte
}

// serving is what others see.
type serving struct {
	leaf   *tls.Certificate
	bundle []byte
}

// New makes a Certificate.
func New(o Options) (*Certificate, error) {
	if o.Life == 0 {
		o.Life = DefaultLife
	}
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, o.Secret.Name).String()
	c := &Certificate{
		o: o, news: make(chan struct{}, 1),
		secrets: informersv1.NewFilteredSecretInformer(o.Client, o.Secret.Namespace, 0, toolscache.Indexers{},
			func(l *metav1.ListOptions) { l.FieldSelector = named }),
	}
	ring := func(any) { c.wakeUp() }
	_, err := c.secrets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: ring, UpdateFunc: func(_, now any) { ring(now) }, DeleteFunc: ring,
	})
	if o.Failed != nil {
		err = errors.Join(err, c.secrets.SetWatchErrorHandlerWithContext(o.Failed))
	}
	return c, err
}

// GetCertificate is for the field GetCertificate of a tls.Config.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s := c.serving.Load(); s != nil {
		return s.leaf, nil
	}
	return nil, fmt.Errorf("there is no certificate yet: it needs the Secret %s", c.o.Secret)
}

// CA returns the CAs that clients have to trust, in PEM, for a caBundle; nil before there is a certificate.
func (c *Certificate) CA() []byte {
	if s := c.serving.Load(); s != nil {
		return s.bundle
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Certificate) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (c *Certificate) Start(ctx context.Context) error {
	go c.secrets.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), c.secrets.HasSynced) {
		return nil
	}
	for {
		next, err := c.sync(ctx)
		if err != nil {
			next = retry
			if ctx.Err() == nil {
				c.o.Log.Error(err, "cannot keep the certificate to serve with, trying again", "secret", c.o.Secret.String())
			}
		}
		stop := c.o.AfterFunc(max(next, retry), c.wakeUp)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-c.news:
			stop()
		}
	}
}

func (c *Certificate) wakeUp() {
	select {
	case c.news <- struct{}{}:
	default: // it rings already
	}
}

// sync looks at the Secret and at the clock, and returns when to look again.
func (c *Certificate) sync(ctx context.Context) (time.Duration, error) {
	now := c.o.Now()
	stored, err := c.stored()
	if err != nil {
		return 0, err
	}
	ours, data := true, map[string][]byte(nil)
	if stored != nil {
		ours, data = stored.Labels[managedBy] == keeper, stored.Data
	}
	ca, failed := readAuthority(data)
	if ca != nil {
		c.known = ca
	}
	switch {
	case failed != nil && !ours:
		failed = fmt.Errorf("the Secret holds something else: name another one, or delete it: %w", failed)
	case ca == nil || ours && !now.Before(ca.renewal()):
		failed = c.renew(ctx, stored, now) // the watch brings what is written
	}
	if c.known == nil {
		return retry, failed
	}
	next, err := c.serve(ctx, c.known, now)
	return next, errors.Join(failed, err)
}

// stored is the Secret, as the watch has it; nil if there is none.
func (c *Certificate) stored() (*corev1.Secret, error) {
	object, exists, err := c.secrets.GetStore().GetByKey(c.o.Secret.String())
	if err != nil || !exists {
		return nil, err
	}
	secret, is := object.(*corev1.Secret)
	if !is {
		return nil, fmt.Errorf("the watch has a %T", object)
	}
	return secret, nil
}

// renew writes a new CA into the Secret, unless another replica has been faster.
func (c *Certificate) renew(ctx context.Context, stored *corev1.Secret, now time.Time) error {
	ca, err := newAuthority(c.o.Secret.Name, c.known, now)
	if err != nil {
		return err
	}
	data, err := ca.data(now)
	if err != nil {
		return err
	}
	secrets := c.o.Client.CoreV1().Secrets(c.o.Secret.Namespace)
	secret := &corev1.Secret{Data: data, ObjectMeta: metav1.ObjectMeta{
		Name: c.o.Secret.Name, Labels: map[string]string{managedBy: keeper},
		Annotations: map[string]string{certmanagerv1.AllowDirectInjectionAnnotation: "true"},
	}}
	if stored == nil {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		secret.ResourceVersion = stored.ResourceVersion
		var patch []byte
		if patch, err = json.Marshal(secret); err != nil {
			return err
		}
		_, err = secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch tells
	}
	if apierrors.IsForbidden(err) && stored == nil {
		return fmt.Errorf("the Secret is missing, and this process may not create it: create an empty one: %w", err)
	}
	if err != nil {
		return fmt.Errorf("write a CA into the Secret: %w", err)
	}
	c.o.Log.Info("made a CA for serving certificates", "secret", c.o.Secret.String())
	return nil
}

// serve makes the CA sign the server's certificate, and returns when to look again.
func (c *Certificate) serve(ctx context.Context, ca *authority, now time.Time) (time.Duration, error) {
	bundle := pki.EncodeCertificates(ca.bundle(now)...)
	var failed error
	if c.o.Trust != nil && !bytes.Equal(bundle, c.told) {
		if failed = c.o.Trust(ctx, bundle); failed == nil {
			c.told = bundle
		}
	}
	var leaf *tls.Certificate
	if s := c.serving.Load(); s != nil {
		leaf = s.leaf
	}
	if leaf == nil || !now.Before(ca.due(leaf.Leaf, now)) && (failed == nil || ca.signed(leaf.Leaf)) {
		signed, err := ca.sign(c.o.DNSNames, c.o.Life, now)
		if err != nil {
			return 0, errors.Join(failed, err)
		}
		leaf = signed
	}
	c.serving.Store(&serving{leaf, bundle})
	return min(ca.due(leaf.Leaf, now).Sub(now), ca.renewal().Sub(now)), failed
}
