package takeover

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The socket of chancery-dns, as the chart has it.
const (
	dnsName   = "chancery-dns"
	dnsDir    = "/run/chancery"
	dnsSocket = dnsDir + "/dns.sock"
	noToken   = "no-token"
)

// runController makes the Deployment of cert-manager's controller run Chancery's. The operator's choices stay:
// replicas, resources, places, environment, volumes and switches.
func runController(d *appsv1.Deployment, in *installation, r *record) {
	c := mainContainer(d)
	args := slices.Concat([]string{"controller"}, given(c), kept(in), []string{"--acme-http01-responder=" + home + "/" + responderName})
	if !in.switches.Sets("acme-http01-solver-image") {
		args = append(args, "--acme-http01-solver-image="+r.Image)
	}
	if r.DNSImage != "" {
		args = append(args, "--dns01-provider-programs=*=unix:"+dnsSocket)
	}
	c.Image, c.Command, c.Args = r.Image, nil, args
	if c.ReadinessProbe == nil { // so that the old Pod stays until the new one can work
		health := intstr.FromInt32(9403)
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "http-healthz" }) {
			health = intstr.FromString("http-healthz")
		}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: health}}}
	}
	if r.DNSImage != "" {
		addDNS(&d.Spec.Template.Spec, c, r.DNSImage)
	}
}

// addDNS puts chancery-dns beside the controller, without the token of its ServiceAccount.
func addDNS(pod *corev1.PodSpec, controller *corev1.Container, image string) {
	socket := corev1.VolumeMount{Name: dnsName, MountPath: dnsDir}
	pod.Volumes = append(pod.Volumes,
		corev1.Volume{Name: dnsName, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		corev1.Volume{Name: noToken, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	controller.VolumeMounts = append(controller.VolumeMounts, socket)
	pod.Containers = append(pod.Containers, corev1.Container{
		Name: dnsName, Image: image, ImagePullPolicy: controller.ImagePullPolicy, Args: []string{"serve", dnsSocket},
		SecurityContext: controller.SecurityContext.DeepCopy(), Env: slices.Clone(controller.Env),
		VolumeMounts: []corev1.VolumeMount{socket, {Name: noToken, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
	})
}

// runInjector makes the Deployment of cert-manager's cainjector run Chancery's.
func runInjector(d *appsv1.Deployment, r *record) {
	c := mainContainer(d)
	c.Image, c.Command, c.Args = r.Image, nil, append([]string{"cainjector"}, given(c)...)
}
