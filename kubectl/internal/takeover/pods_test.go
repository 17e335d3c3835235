package takeover

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/cli"
	"chancery.dev/internal/rig"
)

// kubelet runs the programs of the Deployments in the namespace cert-manager, and writes their statuses: the stand-in
// for cert-manager, and the commands of chancery with the arguments of their Deployment. A new Pod is ready before an
// old one goes.
type kubelet struct {
	*original

	running map[string]*pod
	made    int
}

// pod is a program that runs.
type pod struct {
	image string // and arguments
	stop  func()
}

// startPods runs Deployments until the test ends.
func (o *original) startPods() {
	o.t.Helper()
	k := &kubelet{original: o, running: map[string]*pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := k.sync(ctx); err != nil && ctx.Err() == nil {
				o.t.Logf("kubelet: %v", err)
			}
			return false, nil
		})
	}()
	o.t.Cleanup(func() {
		cancel()
		<-done
		for _, p := range k.running {
			p.stop()
		}
	})
}

func (k *kubelet) sync(ctx context.Context) error {
	list := &appsv1.DeploymentList{}
	if err := k.client.List(ctx, list, client.InNamespace(home)); err != nil {
		return err
	}
	for i := range list.Items {
		d := &list.Items[i]
		if err := k.place(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		n := *d.Spec.Replicas
		now := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		if d.Status.ObservedGeneration == now.ObservedGeneration {
			continue
		}
		d.Status = now
		if err := k.client.Status().Update(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// place runs the program of a Deployment, if it does not run yet.
func (k *kubelet) place(ctx context.Context, d *appsv1.Deployment) error {
	c := mainContainer(d)
	image, old := fmt.Sprint(*d.Spec.Replicas > 0, c.Image, c.Args), k.running[d.Name]
	if old != nil && old.image == image {
		return nil
	}
	next, err := k.start(ctx, d, image)
	if err != nil {
		return err
	}
	if old != nil {
		old.stop()
	}
	k.running[d.Name] = next
	return nil
}

// start starts a program, and waits until it is ready.
func (k *kubelet) start(ctx context.Context, d *appsv1.Deployment, image string) (*pod, error) {
	k.made++
	name := fmt.Sprintf("%s-%d", d.Name, k.made)
	switch c := mainContainer(d); {
	case d.Name == webhookName:
		k.down.Store(*d.Spec.Replicas == 0)
		return &pod{image: image, stop: func() {}}, nil
	case len(c.Args) > 0 && slices.Contains([]string{"controller", "cainjector"}, c.Args[0]):
		return k.startOurs(ctx, d, image, name)
	case d.Name == controllerName:
		return k.startOriginal(image, name)
	default:
		return &pod{image: image, stop: func() {}}, nil
	}
}

// startOriginal holds the lease of cert-manager's controller, and releases it at the end.
func (k *kubelet) startOriginal(image, name string) (*pod, error) {
	clients, err := kubernetes.NewForConfig(k.rc)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leaseName}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name + "-external-cert-manager-controller"},
		},
		LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 200 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return started(image, cancel, func() { elector.Run(ctx) }), nil
}

func started(image string, cancel func(), run func()) *pod {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	return &pod{image: image, stop: func() {
		cancel()
		<-done
	}}
}

// startOurs runs a command of chancery, with the arguments and the rights of the Deployment's Pods.
func (k *kubelet) startOurs(ctx context.Context, d *appsv1.Deployment, image, name string) (*pod, error) {
	config := clientcmdapi.NewConfig()
	admin, err := clientcmd.LoadFromFile(k.kubeconfig)
	if err != nil {
		return nil, err
	}
	*config = *admin
	config.AuthInfos["a"].Impersonate = "system:serviceaccount:" + home + ":" + d.Spec.Template.Spec.ServiceAccountName
	config.AuthInfos["a"].ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"}
	path := filepath.Join(filepath.Dir(k.kubeconfig), name)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return nil, err
	}
	health := rig.FreeAddress(k.t).String()
	args := slices.Concat(mainContainer(d).Args[:1], argsOf(d), []string{
		"--kubeconfig=" + path, "--metrics-listen-address=0", "--internal-healthz-listen-address=" + health,
		"--leader-election-lease-duration=9s", "--leader-election-renew-deadline=6s", "--leader-election-retry-period=500ms",
	})
	log := &strings.Builder{}
	run, cancel := context.WithCancel(context.Background())
	p := started(image, cancel, func() {
		cmd := cli.New()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(log)
		if err := cmd.ExecuteContext(run); err != nil && run.Err() == nil {
			k.t.Errorf("chancery %s ended with: %v\n%s", strings.Join(args, " "), err, log)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, rig.Patience, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("chancery %s is not ready: %w", strings.Join(args, " "), err)
	}
	return p, nil
}

// leader waits until the lease is held, by the stand-in or by chancery.
func (o *original) leader(t *testing.T, ours bool) {
	t.Helper()
	c := cluster{o.client}
	r := &runner{cluster: c, in: &installation{switches: cli.SwitchesOf(false, nil, nil)}}
	rig.Eventually(t, fmt.Sprintf("the lease is held, by chancery: %t", ours), func(ctx context.Context) string {
		holder, err := r.holder(ctx)
		if err != nil || holder == "" || strings.HasSuffix(holder, "-external-cert-manager-controller") == ours {
			return fmt.Sprintf("%s holds it, %v", holder, err)
		}
		return ""
	})
}
