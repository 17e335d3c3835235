package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"chancery.dev/internal/cli/version"
	"chancery.dev/internal/clientside/explain"
	"chancery.dev/internal/clientside/inventory"
	"chancery.dev/internal/kube/podapi"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/machine/podrequest"
	"chancery.dev/kubectl/internal/plugin"
	"chancery.dev/kubectl/internal/status"
	"chancery.dev/kubectl/internal/waits"
)

// Bounds of the logs of one container.
const (
	logLines   = 10_000
	logBytes   = limits.ContainerLog
	metricPort = 9402
)

// MostOfPods is how many requests for certificates of Pods are taken: a cluster has three for each Pod and day, and
// keeps each for a quarter of an hour. MostBytes bounds them too: whoever runs Pods writes up to 256 KiB into each.
const (
	mostOfPods = 10_000
	mostBytes  = 64 << 20
)

// gatherer fills an archive.
type gatherer struct {
	*redactor
	*archive

	client   client.Client
	config   *rest.Config
	progress *plugin.Progress
	// namespace of the objects, empty for all; home that of the controller.
	namespace, home string
	// secrets are those that are somebody's here, seen the objects that events may be about.
	secrets map[types.NamespacedName]bool
	seen    map[types.UID]bool
}

// source is a kind of objects, and which of them are taken: all without is, and those of Pods up to a bound.
type source struct {
	file    string
	kind    schema.GroupVersionKind
	wide    bool // has no namespace
	is      func(*unstructured.Unstructured) bool
	bounded bool
	beta    bool // is v1beta1 in older API servers
}

func sources() []source {
	kind := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	const ours, acme = "cert-manager.io", "acme.cert-manager.io"
	return []source{
		{file: "certificates", kind: kind(ours, "Certificate")},
		{file: "certificaterequests", kind: kind(ours, "CertificateRequest")},
		{file: "issuers", kind: kind(ours, "Issuer")},
		{file: "clusterissuers", kind: kind(ours, "ClusterIssuer"), wide: true},
		{file: "orders", kind: kind(acme, "Order")},
		{file: "challenges", kind: kind(acme, "Challenge")},
		{file: "certificatesigningrequests", kind: kind("certificates.k8s.io", "CertificateSigningRequest"), wide: true, is: isOurSigner},
		{file: "podcertificaterequests", kind: kind("certificates.k8s.io", "PodCertificateRequest"), is: isOurSigner, bounded: true, beta: true},
		{file: "clustertrustbundles", kind: kind("certificates.k8s.io", "ClusterTrustBundle"), wide: true, is: isOurSigner, beta: true},
		{file: "ingresses", kind: kind("networking.k8s.io", "Ingress"), is: asks},
		{file: "gateways", kind: kind("gateway.networking.k8s.io", "Gateway"), is: asks},
	}
}

func isOurSigner(o *unstructured.Unstructured) bool {
	signer, _, _ := unstructured.NestedString(o.Object, "spec", "signerName")
	return podrequest.IsOurs(signer)
}

// asks reports whether an Ingress or a Gateway asks for certificates.
func asks(o *unstructured.Unstructured) bool {
	for name := range o.GetAnnotations() {
		if ourDomains.MatchString(name) || name == "kubernetes.io/tls-acme" {
			return true
		}
	}
	return false
}

// all gathers everything. An error is one of the archive: what cannot be read is noted.
func (g *gatherer) all(ctx context.Context, read func(context.Context) (any, error)) error {
	lists := g.lists(ctx)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"versions", func() error { return g.versions(ctx) }},
		{"objects", func() error { return g.objects(lists) }},
		{"status", func() error { return g.status(ctx) }},
		{"secrets", func() error { return g.namesOfSecrets(ctx) }},
		{"events", func() error { return g.events(ctx) }},
		{"definitions", func() error { return g.definitions(ctx) }},
		{"installation", func() error { return g.installation(ctx) }},
		{"waits", func() error {
			all, err := read(ctx)
			return g.encode("waits.yaml", all, err)
		}},
	} {
		g.progress.Step("reading the %s", step.what)
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

var errMost = fmt.Errorf("there are more than %d, or than %d MiB of them: the others are left out", mostOfPods, mostBytes>>20)

// list reads the objects of a source, in pages. False says that they cannot be read, which is noted.
func (g *gatherer) list(ctx context.Context, s source, namespace string) (taken []unstructured.Unstructured, can bool) {
	list, size := &unstructured.UnstructuredList{}, 0
	list.SetGroupVersionKind(s.kind)
	err := inventory.Pages(ctx, g.client, list, func(object runtime.Object) error {
		o, is := object.(*unstructured.Unstructured)
		if !is || s.is != nil && !s.is(o) {
			return nil
		}
		if s.bounded {
			text, _ := o.MarshalJSON() // it was JSON
			if size += len(text); len(taken) == mostOfPods || size > mostBytes {
				return errMost
			}
		}
		taken = append(taken, *o)
		return nil
	}, client.InNamespace(namespace), client.Limit(inventory.PageSize))
	if err == nil {
		return taken, true
	}
	if unserved := inventory.Unserved(err); unserved && s.beta {
		s.beta, s.kind.Version = false, podapi.V1Beta
		return g.list(ctx, s, namespace)
	} else if unserved {
		err = errors.New("the cluster does not have this kind")
	}
	g.lack(s.kind.Kind+" objects", err)
	return taken, errors.Is(err, errMost)
}

// found are the objects of a source.
type found struct {
	source
	items []unstructured.Unstructured
}

// lists reads the objects, and learns from them which Secrets and host names there are.
func (g *gatherer) lists(ctx context.Context) (all []found) {
	var hosts []string
	for _, s := range sources() {
		namespace := g.namespace
		if s.wide {
			namespace = ""
		}
		items, can := g.list(ctx, s, namespace)
		if !can {
			continue
		}
		for i := range items {
			o := &items[i]
			g.seen[o.GetUID()] = true
			if pod, is, _ := unstructured.NestedString(o.Object, "spec", "podUID"); is { // events are about the Pod
				g.seen[types.UID(pod)] = true
			}
			if name, is, _ := unstructured.NestedString(o.Object, "spec", "secretName"); is {
				g.secrets[types.NamespacedName{Namespace: o.GetNamespace(), Name: name}] = true
			}
			hosts = append(hosts, hostsOf(o.Object["spec"])...)
		}
		all = append(all, found{s, items})
	}
	if g.pseudonyms != nil {
		g.hide(hosts)
	}
	return all
}

// hostsOf are the host names in the spec of any object.
func hostsOf(value any) (hosts []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			hosts = append(hosts, hostsOf(item)...)
		}
	case map[string]any:
		for name, item := range value {
			text, isText := item.(string)
			texts, _ := item.([]any)
			switch name {
			case "dnsName", "commonName", "host", "hostname":
				if isText {
					hosts = append(hosts, text)
				}
			case "dnsNames", "dnsZones", "hosts":
				for _, text := range texts {
					hosts = append(hosts, fmt.Sprint(text))
				}
			}
			hosts = append(hosts, hostsOf(item)...)
		}
	}
	return hosts
}

func (g *gatherer) objects(all []found) error {
	for _, f := range all {
		if err := g.dump("objects/"+f.file+".yaml", f.items); err != nil {
			return err
		}
	}
	return nil
}

// dump writes objects without what does not belong there.
func (g *gatherer) dump(file string, items []unstructured.Unstructured) error {
	var out bytes.Buffer
	for i := range items {
		g.object(items[i].GetKind(), items[i].Object)
		text, err := yaml.Marshal(items[i].Object)
		if err != nil {
			return err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return g.put(file, out.Bytes())
}

// encode writes a value as YAML, by its fields; an error is noted.
func (g *gatherer) encode(file string, value any, err error) error {
	if err != nil {
		g.lack(file, err)
		return nil
	}
	text, err := json.Marshal(map[string]any{"items": value})
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	g.value("List", fields)
	if text, err = yaml.Marshal(fields); err != nil {
		return err
	}
	return g.put(file, text)
}

func (g *gatherer) versions(ctx context.Context) error {
	var out bytes.Buffer
	fmt.Fprintln(&out, "kubectl-chancery:", version.Number())
	clients, err := kubernetes.NewForConfig(g.config)
	if err != nil {
		return err
	}
	if server, err := clients.Discovery().ServerVersion(); err == nil {
		fmt.Fprintln(&out, "Kubernetes:", server.GitVersion, server.Platform)
	} else {
		g.lack("version of Kubernetes", err)
	}
	groups, err := clients.Discovery().ServerGroups()
	if err != nil {
		g.lack("versions of the API", err)
	} else {
		for _, group := range groups.Groups {
			for _, v := range group.Versions {
				fmt.Fprintln(&out, "API:", v.GroupVersion)
			}
		}
	}
	return errors.Join(ctx.Err(), g.put("versions.txt", out.Bytes()))
}

// status explains the Certificates that are not ready.
func (g *gatherer) status(ctx context.Context) error {
	reports, err := status.Gather(ctx, g.client, status.Query{Namespace: g.namespace, Selector: labels.Everything()}, time.Now())
	reports = slices.DeleteFunc(reports, func(r explain.Report) bool { return r.Outcome == explain.Issued.String() && r.Cause == "" })
	return g.encode("status.yaml", reports, err)
}

// metadataOf lists objects without anything but their metadata.
func (g *gatherer) metadataOf(ctx context.Context, kind schema.GroupVersionKind, namespace string, is func(*metav1.PartialObjectMetadata) bool) []metav1.PartialObjectMetadata {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := g.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		g.lack("names of "+kind.Kind+" objects", err)
		return nil
	}
	taken := slices.DeleteFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return !is(&o) })
	for i := range taken {
		taken[i].ManagedFields = nil
	}
	return taken
}

// namesOfSecrets lists the Secrets of Certificates, by their metadata: the API server sends no data.
func (g *gatherer) namesOfSecrets(ctx context.Context) error {
	secrets := g.metadataOf(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), g.namespace, func(o *metav1.PartialObjectMetadata) bool {
		if g.secrets[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] {
			return true
		}
		for name := range o.Annotations {
			if ourDomains.MatchString(name) {
				return true
			}
		}
		return false
	})
	return g.encode("secrets.yaml", secrets, nil)
}

// events are those about the objects, about objects of our kinds, and ours about Pods. Of Pods with requests, they are
// those of the kubelet about certificates, too: others say what runs there.
func (g *gatherer) events(ctx context.Context) error {
	taken, can := g.list(ctx, source{kind: corev1.SchemeGroupVersion.WithKind("Event"), is: func(o *unstructured.Unstructured) bool {
		e := &corev1.Event{}
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, e) // what is no Event is about nothing
		if e.InvolvedObject.Kind == "Pod" {
			return slices.Contains(podrequest.Waits(), e.Reason) || g.seen[e.InvolvedObject.UID] && explain.IsPodTrouble(e)
		}
		return g.seen[e.InvolvedObject.UID] || strings.Contains(e.InvolvedObject.APIVersion, "cert-manager.io/")
	}}, g.namespace)
	if !can {
		return nil
	}
	return g.dump("events.yaml", taken)
}

func (g *gatherer) definitions(ctx context.Context) error {
	kind := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	return g.encode("definitions.yaml", g.metadataOf(ctx, kind, "", func(o *metav1.PartialObjectMetadata) bool {
		return strings.HasSuffix(o.Name, "cert-manager.io")
	}), nil)
}

// installation reads what runs of Chancery: Deployments, Pods, leases, logs and metrics.
func (g *gatherer) installation(ctx context.Context) error {
	controllers, err := waits.Controllers(ctx, g.client, g.home)
	if err != nil {
		g.lack("Pods of the controller", err)
	}
	if g.home == "" {
		g.home = waits.Home
		if len(controllers) > 0 {
			g.home = controllers[0].Namespace
		}
	}
	for _, kind := range []schema.GroupVersionKind{{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "Pod"}, {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}} {
		taken, can := g.list(ctx, source{kind: kind, is: func(o *unstructured.Unstructured) bool {
			return isPart(o.GetName()) || isPart(o.GetLabels()["app.kubernetes.io/name"])
		}}, g.home)
		if !can {
			continue
		}
		if err := g.dump("installation/"+strings.ToLower(kind.Kind)+"s.yaml", taken); err != nil {
			return err
		}
	}
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
	if err := g.client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "cert-manager-controller"}, lease); err == nil {
		if err := g.dump("installation/lease-kube-system.yaml", []unstructured.Unstructured{*lease}); err != nil {
			return err
		}
	} else if !apierrors.IsNotFound(err) {
		g.lack("lease in kube-system", err)
	}
	for i := range controllers {
		if err := errors.Join(g.logs(ctx, &controllers[i]), g.metrics(ctx, &controllers[i])); err != nil {
			return err
		}
	}
	return nil
}

func isPart(name string) bool {
	return strings.HasPrefix(name, "chancery") || strings.HasPrefix(name, "cert-manager") || name == "cainjector" || name == "webhook"
}

// logs reads the end of the logs of a Pod, and of those of its containers that have ended before.
func (g *gatherer) logs(ctx context.Context, pod *corev1.Pod) error {
	clients, err := kubernetes.NewForConfig(g.config)
	if err != nil {
		return err
	}
	restarted := map[string]bool{}
	for _, c := range pod.Status.ContainerStatuses {
		restarted[c.Name] = c.RestartCount > 0
	}
	for _, c := range pod.Spec.Containers {
		for _, previous := range []bool{false, true} {
			if previous && !restarted[c.Name] {
				continue
			}
			file := "logs/" + pod.Name + "/" + c.Name + map[bool]string{true: ".previous"}[previous] + ".log"
			text, err := logOf(ctx, clients, pod, &corev1.PodLogOptions{
				Container: c.Name, Previous: previous, TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes)),
			})
			if err != nil {
				g.lack(file, err)
			}
			if err := g.put(file, []byte(g.prose(string(text)))); err != nil {
				return err
			}
		}
	}
	return nil
}

func logOf(ctx context.Context, clients kubernetes.Interface, pod *corev1.Pod, o *corev1.PodLogOptions) ([]byte, error) {
	stream, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return io.ReadAll(io.LimitReader(stream, logBytes))
}

// metrics asks a controller for its metrics.
func (g *gatherer) metrics(ctx context.Context, pod *corev1.Pod) error {
	file := "metrics/" + pod.Name + ".txt"
	code, text, err := waits.Get(ctx, g.config, client.ObjectKeyFromObject(pod), metricPort, "/metrics")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("the controller answers %d", code)
	}
	if err != nil {
		g.lack(file, err)
		return nil
	}
	return g.put(file, []byte(g.text(string(text))))
}
