package kubelet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pod is a pod that runs.
type pod struct {
	object  *corev1.Pod
	address string
	dir     string
	was     bool
	running []*process
}

// process is a container.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// patience is how long a process has to end after SIGTERM.
const patience = 30 * time.Second

// hash tells templates apart.
func hash(template corev1.PodTemplateSpec) string {
	sum := fnv.New32a()
	text, _ := template.Marshal()
	_, _ = sum.Write(text)
	return fmt.Sprintf("%x", sum.Sum32())
}

// script runs a container. The first container of a pod waits for the network of the pod. The script mounts the volumes
// (pairs of directories), makes the root directory read-only, and becomes the program.
const script = `root=$1 address=$2 volumes=$3; shift 3
if [ -n "$address" ]; then
	read -r _
	ip link set lo up; ip addr add "$address/16" dev eth0; ip link set eth0 up; ip route add default via ` + bridgeAddress + `
fi
mount --bind "$root" "$root"; mount -t proc proc "$root/proc"
for pair in $volumes; do mount --bind "${pair%:*}" "$root${pair#*:}"; done
mount -o remount,bind,ro "$root"
exec "$@"`

// start starts the containers of a pod.
func (k *Kubelet) start(ctx context.Context, p *pod) error {
	for i, container := range p.object.Spec.Containers {
		root := filepath.Join(p.dir, container.Name)
		volumes, err := k.volumes(ctx, p, container, root)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil { //nolint:gosec // every user may read it
			return err
		}
		if err := p.hosts(root); err != nil {
			return err
		}
		if err := k.program(container.Image, filepath.Join(root, "program")); err != nil {
			return err
		}
		env := k.environment(p, container)
		address, namespaces := p.address, []string{"unshare", "--net"}
		if i > 0 {
			address, namespaces = "", []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", p.running[0].cmd.Process.Pid), "unshare"}
		}
		args := append(namespaces, "--mount", "--propagation", "private", "sh", "-euc", script, "sh", root, address, strings.Join(volumes, " "), "env", "-i")
		for name, value := range env {
			args = append(args, name+"="+value)
		}
		args = append(args, "/usr/sbin/chroot", "--userspec=65532:65532", "--groups=", root, "/program")
		for _, arg := range container.Args {
			for name, value := range env {
				arg = strings.ReplaceAll(arg, "$("+name+")", value)
			}
			args = append(args, arg)
		}
		if err := p.launch(i, args); err != nil {
			return err
		}
	}
	return nil
}

// launch starts the i-th container. The first one has the network of the pod.
func (p *pod) launch(i int, args []string) error {
	log, err := os.Create(filepath.Join(p.dir, fmt.Sprint(i)+".log"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	one := &process{cmd: cmd, done: make(chan struct{})}
	p.running = append(p.running, one)
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(one.done)
	}()
	if i == 0 {
		if err := p.connect(cmd.Process.Pid); err != nil {
			return err
		}
	}
	_, err = stdin.Write([]byte("\n"))
	return err
}

// connect leads from the bridge into the network of a process, as soon as the process has one of its own.
func (p *pod) connect(pid int) error {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	for range 1000 {
		if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && its != own {
			break
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // nothing tells of a namespace
	}
	near := "pod" + filepath.Base(p.dir)
	out, err := exec.CommandContext(context.Background(), "sh", "-ec", fmt.Sprintf(
		"ip link add %[1]s type veth peer name eth0 netns %[2]d; ip link set %[1]s master kube up", near, pid)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("connect a pod: %w: %s", err, out)
	}
	return nil
}

// environment is that of a container.
func (k *Kubelet) environment(p *pod, container corev1.Container) map[string]string {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": serverAddress, "KUBERNETES_SERVICE_PORT": "443"}
	for _, v := range container.Env {
		env[v.Name] = v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			env[v.Name] = map[string]string{
				"metadata.namespace": p.object.Namespace, "metadata.name": p.object.Name, "status.podIP": p.address,
			}[v.ValueFrom.FieldRef.FieldPath]
		}
	}
	return env
}

// program puts the program of an image into a root directory. There is one copy of each, for the file may be on another
// device.
func (k *Kubelet) program(image, to string) error {
	from := filepath.Join(k.dir, filepath.Base(k.programs[image]))
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		if out, err := exec.CommandContext(context.Background(), "cp", k.programs[image], from).CombinedOutput(); err != nil {
			return fmt.Errorf("copy the program: %w: %s", err, out)
		}
	}
	return os.Link(from, to)
}

// hosts writes the file of the names that the pod's specification gives.
func (p *pod) hosts(root string) error {
	if len(p.object.Spec.HostAliases) == 0 {
		return nil
	}
	text := ""
	for _, alias := range p.object.Spec.HostAliases {
		text += alias.IP + " " + strings.Join(alias.Hostnames, " ") + "\n"
	}
	etc := filepath.Join(root, "etc")
	return errors.Join(os.MkdirAll(etc, 0o755), os.WriteFile(filepath.Join(etc, "hosts"), []byte(text), 0o644)) //nolint:gosec // every user may read it
}

// volumes makes the volumes of a container, and the places in its root directory, and returns the pairs of both.
func (k *Kubelet) volumes(ctx context.Context, p *pod, container corev1.Container, root string) (pairs []string, err error) {
	for _, mount := range container.VolumeMounts {
		from := filepath.Join(p.dir, "volumes", mount.Name)
		if err := errors.Join(os.MkdirAll(from, 0o777), os.Chmod(from, 0o777), os.MkdirAll(filepath.Join(root, mount.MountPath), 0o755)); err != nil { //nolint:gosec // the process has another user
			return nil, err
		}
		for _, volume := range p.object.Spec.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			if err := k.fill(ctx, p, volume, from); err != nil {
				return nil, fmt.Errorf("volume %s: %w", volume.Name, err)
			}
		}
		pairs = append(pairs, from+":"+mount.MountPath)
	}
	return pairs, nil
}

// fill writes what a volume holds.
func (k *Kubelet) fill(ctx context.Context, p *pod, volume corev1.Volume, into string) error {
	files := map[string]string{}
	if source := volume.ConfigMap; source != nil {
		config := &corev1.ConfigMap{}
		if err := k.client.Get(ctx, client.ObjectKey{Namespace: p.object.Namespace, Name: source.Name}, config); err != nil {
			return err
		}
		files = config.Data
	}
	if volume.Projected != nil { // the service account's token, which the API server has added
		seconds := int64(3600)
		request, err := k.clients.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx, p.object.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{
				APIVersion: "v1", Kind: "Pod", Name: p.object.Name, UID: p.object.UID,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		files["token"], files["ca.crt"], files["namespace"] = request.Status.Token, string(k.admin.CAData), p.object.Namespace
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(into, name), []byte(text), 0o644); err != nil { //nolint:gosec // the process has another user
			return err
		}
	}
	return nil
}

// ready reports whether all containers are ready.
func (p *pod) ready(ctx context.Context) bool {
	for _, container := range p.object.Spec.Containers {
		if !answers(ctx, p.address, container) {
			return false
		}
	}
	return true
}

// ended returns the exit code of the first container that has ended.
func (p *pod) ended() (code int, ended bool) {
	for _, one := range p.running {
		select {
		case <-one.done:
			return one.cmd.ProcessState.ExitCode(), true
		default:
		}
	}
	return 0, false
}

// stop ends the containers.
func (p *pod) stop() {
	for _, one := range p.running {
		_ = one.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-one.done:
		case <-time.After(patience):
			_ = one.cmd.Process.Kill()
			<-one.done
		}
	}
}

// tell logs what the containers have said last.
func (p *pod) tell(t testing.TB) {
	t.Helper()
	for i := range p.running {
		said, _ := os.ReadFile(filepath.Join(p.dir, fmt.Sprint(i)+".log"))
		t.Logf("pod %s, container %d said:\n%s", p.object.Name, i, said[max(0, len(said)-4000):])
	}
}
