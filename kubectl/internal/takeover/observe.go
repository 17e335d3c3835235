package takeover

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/cli"
)

// The names that an installation of cert-manager has (spec §11.1), and chancery install too.
const (
	home           = "cert-manager"
	controllerName = "cert-manager"
	injectorName   = "cert-manager-cainjector"
	webhookName    = "cert-manager-webhook"
	leaseName      = "cert-manager-controller"
	responderName  = "chancery-responder"
)

// pageSize bounds what is read at once.
const pageSize = 500

// cluster reads what takeovers need to know.
type cluster struct{ client.Client }

// installation is the cert-manager that runs.
type installation struct {
	controller, injector, webhook *appsv1.Deployment // nil for one that is not there
	// switches are those of the controller, and injectorSwitches those of the injector.
	switches, injectorSwitches *cli.Switches
}

// installed finds the Deployments of cert-manager in its usual namespace. Deployments of it elsewhere are named in
// elsewhere.
func (c cluster) installed(ctx context.Context) (in *installation, elsewhere []string, err error) {
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("list Deployments: %w", err)
	}
	in = &installation{}
	for i := range list.Items {
		d := &list.Items[i]
		switch key := d.Namespace + "/" + d.Name; {
		case key == home+"/"+controllerName:
			in.controller = d
		case key == home+"/"+injectorName:
			in.injector = d
		case key == home+"/"+webhookName:
			in.webhook = d
		case containerOf(d, "cert-manager-controller") != nil || d.Labels["app.kubernetes.io/name"] == "cert-manager" && d.Labels["app.kubernetes.io/component"] == "controller":
			elsewhere = append(elsewhere, key)
		}
	}
	if in.controller != nil {
		if in.switches, err = c.switchesOf(ctx, in.controller, false); err != nil {
			return nil, nil, err
		}
	}
	if in.injector != nil {
		in.injectorSwitches, err = c.switchesOf(ctx, in.injector, true)
	}
	return in, elsewhere, err
}

// containerOf is the container of a name.
func containerOf(d *appsv1.Deployment, name string) *corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}

// mainContainer is the one that runs the program.
func mainContainer(d *appsv1.Deployment) *corev1.Container {
	for _, name := range []string{"cert-manager-controller", "cert-manager-cainjector", "cert-manager-webhook", "cert-manager"} {
		if c := containerOf(d, name); c != nil {
			return c
		}
	}
	return &d.Spec.Template.Spec.Containers[0]
}

// given are the arguments of a container's program, wherever the Deployment has them.
func given(c *corev1.Container) []string {
	return slices.Concat(c.Command[min(1, len(c.Command)):], c.Args)
}

// isOurs reports whether a Deployment runs chancery: its first argument is then a command.
func isOurs(d *appsv1.Deployment) bool {
	args := given(mainContainer(d))
	return len(args) > 0 && !strings.HasPrefix(args[0], "-")
}

// reference is how arguments name an environment variable.
var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// argsOf are the arguments of a Deployment without its command, with the variables that they name.
func argsOf(d *appsv1.Deployment) []string {
	container := mainContainer(d)
	values := map[string]string{}
	for _, e := range container.Env {
		values[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
			values[e.Name] = d.Namespace
		}
	}
	args := given(container)
	if isOurs(d) {
		args = args[1:]
	}
	for i := range args {
		args[i] = reference.ReplaceAllStringFunc(args[i], func(text string) string {
			if value, known := values[text[2:len(text)-1]]; known {
				return value
			}
			return text
		})
	}
	return args
}

func (c cluster) switchesOf(ctx context.Context, d *appsv1.Deployment, injector bool) (*cli.Switches, error) {
	args := argsOf(d)
	path := cli.SwitchesOf(injector, args, nil).Value("config")
	file, err := c.configFile(ctx, d, path)
	if err != nil {
		return nil, err
	}
	s := cli.SwitchesOf(injector, args, file)
	if path != "" && file == nil {
		s.Fates = append(s.Fates, cli.Fate{
			Switch: "the file " + path, Refused: true, Why: "it is not in a ConfigMap that the Deployment mounts, so nobody knows what it sets: use flags, or a ConfigMap",
		})
	}
	return s, nil
}

// configFile reads the file of a Pod that comes from a ConfigMap; nil if there is no such file.
func (c cluster) configFile(ctx context.Context, d *appsv1.Deployment, path string) ([]byte, error) {
	for _, mount := range mainContainer(d).VolumeMounts {
		file, within := strings.CutPrefix(path+"/", strings.TrimSuffix(mount.MountPath, "/")+"/")
		file = strings.Trim(mount.SubPath+"/"+file, "/")
		for _, v := range d.Spec.Template.Spec.Volumes {
			if !within || v.Name != mount.Name || v.ConfigMap == nil {
				continue
			}
			found := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: v.ConfigMap.Name}, found); err != nil {
				return nil, fmt.Errorf("read the ConfigMap of the configuration file of %s: %w", d.Name, err)
			}
			key := file
			if i := slices.IndexFunc(v.ConfigMap.Items, func(item corev1.KeyToPath) bool { return item.Path == file }); i >= 0 {
				key = v.ConfigMap.Items[i].Key
			}
			if text, there := found.Data[key]; there {
				return []byte(text), nil
			}
		}
	}
	return nil, nil
}

// each calls do with all objects of a kind; a kind that is not served has none.
func (c cluster) each(ctx context.Context, gvk schema.GroupVersionKind, do func(*unstructured.Unstructured), options ...client.ListOption) error {
	list := &unstructured.UnstructuredList{}
	for {
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := c.List(ctx, list, append(options, client.Limit(pageSize), client.Continue(list.GetContinue()))...)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// pages calls do after each page of a list.
func (c cluster) pages(ctx context.Context, list client.ObjectList, do func(), options ...client.ListOption) error {
	for {
		if err := c.List(ctx, list, append(options, client.Limit(pageSize), client.Continue(list.GetContinue()))...); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
		do()
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// allIssuers lists Issuers and ClusterIssuers.
func (c cluster) allIssuers(ctx context.Context) (out []certmanagerv1.GenericIssuer, err error) {
	issuers, clusterIssuers := &certmanagerv1.IssuerList{}, &certmanagerv1.ClusterIssuerList{}
	for _, list := range []client.ObjectList{issuers, clusterIssuers} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range issuers.Items {
		out = append(out, &issuers.Items[i])
	}
	for i := range clusterIssuers.Items {
		out = append(out, &clusterIssuers.Items[i])
	}
	return out, nil
}

// nameOf names an object for people.
func nameOf(o client.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
