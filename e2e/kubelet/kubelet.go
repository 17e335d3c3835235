// Package kubelet replaces the parts of Kubernetes that run pods. It makes the pods of Deployments and Jobs, runs the
// containers of the pods as processes, writes the status of the pods, and forwards the addresses of Services to the
// pods. A process runs as the user 65532. It gets the arguments, the environment, the volumes and the service account
// token of its container, and nothing else. The root directory of the process is read-only and holds only the program,
// as in a container image FROM scratch. The network of the process has only the address of the pod. Only tests import
// the package. These tests run as root, in a network namespace of their own.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The network of the pods: the API server's own address, that of the bridge, and the beginning of those of the pods.
const (
	serverAddress = "10.96.0.1"
	bridgeAddress = "10.90.0.1"
	podPrefix     = "10.90.1."
	period        = 200 * time.Millisecond
)

// Kubelet runs pods.
type Kubelet struct {
	t        testing.TB
	client   client.Client
	clients  kubernetes.Interface
	admin    *rest.Config
	programs map[string]string
	dir      string
	pods     map[string]*pod
	made     int
	// services are the listeners of Services, by address and port.
	services map[string]*listener
}

// Start runs the pods of all Deployments and Jobs until the test ends. programs are the entry points of images; pods of
// other images stay as they are.
func Start(t testing.TB, rc *rest.Config, programs map[string]string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can give processes a root directory and a network of their own")
	}
	c, err := client.New(rc, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{t: t, client: c, clients: clients, admin: rc, programs: programs, dir: t.TempDir(), pods: map[string]*pod{}, services: map[string]*listener{}}
	// Every user may pass through the directories that lead to the root directory of a pod.
	for dir := k.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // that is the purpose
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", "ip link add kube type bridge; ip addr add "+bridgeAddress+
		"/16 dev kube; ip addr add "+serverAddress+"/32 dev kube; ip link set kube up").CombinedOutput(); err != nil {
		t.Fatalf("make a bridge: %v: %s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server, err := url.Parse(rc.Host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(ctx, serverAddress+":443", server.Host); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, period, true, func(ctx context.Context) (bool, error) {
			if err := errors.Join(k.sync(ctx), k.proxy(ctx)); err != nil && ctx.Err() == nil {
				t.Logf("kubelet: %v", err)
			}
			return false, nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, p := range k.pods {
			p.stop()
			if t.Failed() {
				p.tell(t)
			}
		}
		_ = exec.Command("ip", "link", "del", "kube").Run() //nolint:noctx // the end of the test
	})
}

// sync looks at everything once.
func (k *Kubelet) sync(ctx context.Context) error {
	deployments, jobs := &appsv1.DeploymentList{}, &batchv1.JobList{}
	if err := errors.Join(k.client.List(ctx, deployments), k.client.List(ctx, jobs)); err != nil {
		return err
	}
	wanted, errs := map[string]bool{}, []error{}
	for _, d := range deployments.Items {
		errs = append(errs, k.deployment(ctx, &d, wanted))
	}
	for _, j := range jobs.Items {
		errs = append(errs, k.job(ctx, &j, wanted))
	}
	for name, p := range k.pods {
		if !wanted[name] {
			p.stop()
			delete(k.pods, name)
			errs = append(errs, client.IgnoreNotFound(k.client.Delete(ctx, p.object, client.GracePeriodSeconds(0))))
		}
	}
	return errors.Join(errs...)
}

// deployment runs the pods of a Deployment, those of its last template, and writes its status. Pods of an older
// template go when the new ones are ready.
func (k *Kubelet) deployment(ctx context.Context, d *appsv1.Deployment, wanted map[string]bool) error {
	replicas, ready := *d.Spec.Replicas, int32(0)
	own := fmt.Sprintf("%s/%s-", d.Namespace, d.UID)
	revision := hash(d.Spec.Template)
	for i := range replicas {
		name := fmt.Sprintf("%s%s-%d", own, revision, i)
		wanted[name] = true
		is, err := k.run(ctx, name, d.Name, d.Namespace, d.Spec.Template)
		if err != nil {
			return err
		}
		if is {
			ready++
		}
	}
	for name := range k.pods {
		if strings.HasPrefix(name, own) && ready < replicas {
			wanted[name] = true
		}
	}
	status := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: ready, AvailableReplicas: ready,
		UnavailableReplicas: replicas - ready, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse}},
	}
	if ready == replicas {
		status.Conditions[0].Status = corev1.ConditionTrue
	}
	before := d.Status
	if before.ReadyReplicas == ready && before.ObservedGeneration == d.Generation && before.Replicas == replicas && len(before.Conditions) > 0 {
		return nil
	}
	d.Status = status
	return k.client.Status().Update(ctx, d)
}

// job runs the pod of a Job until it succeeds.
func (k *Kubelet) job(ctx context.Context, j *batchv1.Job, wanted map[string]bool) error {
	name := fmt.Sprintf("%s/%s", j.Namespace, j.UID)
	if j.Status.CompletionTime != nil {
		return nil
	}
	wanted[name] = true
	if _, err := k.run(ctx, name, j.Name, j.Namespace, j.Spec.Template); err != nil {
		return err
	}
	p := k.pods[name]
	code, ended := p.ended()
	if !ended {
		return nil
	}
	if code != 0 {
		p.tell(k.t)
		delete(k.pods, name)
		return client.IgnoreNotFound(k.client.Delete(ctx, p.object, client.GracePeriodSeconds(0)))
	}
	now := metav1.Now()
	j.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	return k.client.Status().Update(ctx, j)
}

// run makes a pod and starts it, unless that is done, and reports whether it is ready.
func (k *Kubelet) run(ctx context.Context, key, owner, namespace string, template corev1.PodTemplateSpec) (ready bool, err error) {
	p := k.pods[key]
	if p == nil {
		for _, container := range template.Spec.Containers {
			if k.programs[container.Image] == "" {
				return false, nil
			}
		}
		k.made++
		p = &pod{address: podPrefix + strconv.Itoa(k.made+1), dir: filepath.Join(k.dir, strconv.Itoa(k.made))}
		p.object = &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		p.object.Namespace, p.object.Name, p.object.Spec.NodeName = namespace, owner+"-"+strconv.Itoa(k.made), "node"
		if err := k.client.Create(ctx, p.object); err != nil {
			return false, err
		}
		if err := k.start(ctx, p); err != nil {
			return false, err
		}
		k.pods[key] = p
	}
	if _, ended := p.ended(); ended {
		return false, nil
	}
	ready = p.ready(ctx)
	if ready == p.was && p.object.Status.PodIP != "" {
		return ready, nil
	}
	p.was = ready
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	p.object.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}}, Conditions: []corev1.PodCondition{condition},
	}
	return ready, k.client.Status().Update(ctx, p.object)
}

// answers reports whether a probe succeeds.
func answers(ctx context.Context, address string, container corev1.Container) bool {
	probe := container.ReadinessProbe
	if probe == nil {
		return true
	}
	port := probe.HTTPGet.Port.IntValue()
	for _, p := range container.Ports {
		if p.Name == probe.HTTPGet.Port.StrVal {
			port = int(p.ContainerPort)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, strconv.Itoa(port))+probe.HTTPGet.Path, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
