package takeover

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/internal/rig/slow"
)

// TestOddDeployment: switches are found wherever a Deployment has them, and a file that cannot be read is red. A
// takeover that was begun and has not ended is red, too.
func TestOddDeployment(t *testing.T) {
	t.Parallel()
	slow.Test(t, slow.Takeover)
	o := newOriginal(t)
	o.create(&corev1.ConfigMap{ObjectMeta: objectMeta(home, "switches"), Data: map[string]string{
		"text": "apiVersion: controller.config.cert-manager.io/v1alpha1\nkind: ControllerConfiguration\nclusterResourceNamespace: elsewhere\n",
	}})
	const unread, namespace = "is not in a ConfigMap", "--cluster-resource-namespace=kube-system"
	for _, c := range []struct {
		name          string
		command, args []string
		mount         corev1.VolumeMount
		items         []corev1.KeyToPath
		want, never   string
	}{
		{name: "flags in the command", command: []string{"/controller", "--cluster-resource-namespace=elsewhere"}, never: namespace},
		{name: "a file that is in no ConfigMap", args: []string{"--config", "/etc/c.yaml"}, want: unread},
		{name: "a key that is not there", args: []string{"--config=/etc/c/none"}, mount: corev1.VolumeMount{MountPath: "/etc/c"}, want: unread},
		{name: "a directory", args: []string{"--config=/etc/c/text"}, mount: corev1.VolumeMount{MountPath: "/etc/c/"}, never: namespace},
		{
			name: "items", args: []string{"--config=/etc/c/sub/file.yaml"}, mount: corev1.VolumeMount{MountPath: "/etc/c"},
			items: []corev1.KeyToPath{{Key: "text", Path: "sub/file.yaml"}}, never: namespace,
		},
		{name: "one file", args: []string{"--config=/etc/c.yaml"}, mount: corev1.VolumeMount{MountPath: "/etc/c.yaml", SubPath: "text"}, never: namespace},
	} {
		d := &appsv1.Deployment{}
		if err := o.client.Get(t.Context(), client.ObjectKey{Namespace: home, Name: controllerName}, d); err != nil {
			t.Fatal(err)
		}
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Command, pod.Containers[0].Args, pod.Containers[0].VolumeMounts, pod.Volumes = c.command, c.args, nil, nil
		if c.mount.MountPath != "" {
			c.mount.Name = "switches"
			pod.Containers[0].VolumeMounts = []corev1.VolumeMount{c.mount}
			pod.Volumes = []corev1.Volume{{Name: "switches", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "switches"}, Items: c.items,
			}}}}
		}
		if err := o.client.Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		code := 0
		if c.want != "" {
			code = redCode
		}
		said := o.reported(code, "--image="+ourImage).about(aboutSwitches)
		if !strings.Contains(said, c.want) || c.never != "" && strings.Contains(said, c.never) {
			t.Errorf("%s: check must say %q, and must not say %q:\n%s", c.name, c.want, c.never, said)
		}
	}
}

// TestCommandLine: flags that the command has reach Chancery.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Command: []string{"/controller", "--v=4"}, Args: []string{"--max-concurrent-challenges=7"}}}
	s, err := cluster{}.switchesOf(t.Context(), d, false)
	if err != nil {
		t.Fatal(err)
	}
	runController(d, &installation{controller: d.DeepCopy(), switches: s}, &record{Image: ourImage})
	c := d.Spec.Template.Spec.Containers[0]
	if len(c.Command) > 0 || !slices.Equal(c.Args[:3], []string{"controller", "--v=4", "--max-concurrent-challenges=7"}) {
		t.Errorf("Chancery runs with %q %q", c.Command, c.Args)
	}
}
