package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"chancery.dev/api"
)

// definitions compares the custom resource definitions that the API server has with those that the controller was
// built for: their rules are the validation, and a field that a definition lacks is dropped from every write.
// Definitions that Chancery has made, of another version, are good enough: what they lack is logged. With those of
// somebody else, the controller does not lead while they lack something, unless the user accepts them.
type definitions struct {
	read   client.Reader
	accept bool
	unread bool // the rights of the controller are for namespaces, and the definitions belong to none
	log    logr.Logger
	said   string        // what was logged last
	fit    chan struct{} // closed once the controller may lead
}

func newDefinitions(rc *rest.Config, cfg Config, log logr.Logger) (*definitions, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	read, err := client.New(rc, client.Options{Scheme: scheme})
	return &definitions{
		read: read, accept: cfg.AcceptForeignCRDs, unread: len(cfg.Namespaces) > 0,
		log: log.WithName("definitions"), fit: make(chan struct{}),
	}, err
}

// check returns an error if the controller must not work with the definitions. It is called by one goroutine at a time.
func (d *definitions) check(ctx context.Context) error {
	if d.unread {
		close(d.fit)
		return nil
	}
	ours, err := api.CRDs()
	if err != nil {
		return err
	}
	var fields, rules []string
	foreign, unread := false, error(nil)
	for _, our := range ours {
		theirs := &apiextensionsv1.CustomResourceDefinition{}
		err := d.read.Get(ctx, client.ObjectKeyFromObject(our), theirs)
		switch {
		case apierrors.IsForbidden(err): // a controller of one namespace need not have the right
			unread = err
			continue
		case apierrors.IsNotFound(err): // the watches say so
			continue
		case err != nil:
			if d.changed(err.Error()) {
				d.log.Error(err, "cannot read a custom resource definition, trying again", "definition", our.Name)
			}
			return fmt.Errorf("read the custom resource definition %s: %w", our.Name, err)
		}
		f, r, others := CompareDefinitions(our, theirs)
		foreign = foreign || others
		fields, rules = append(fields, f...), append(rules, r...)
	}
	lacks := slices.Concat(fields, rules) // what a field holds is lost, which is worse
	switch what := inAll(lacks); {
	case foreign && !d.accept:
		err := fmt.Errorf("the custom resource definitions are not Chancery's, and lack %s: what they forbid is not refused, and what they "+
			"do not know is lost. Apply ours (chancery install --force-conflicts), or accept these (--accept-foreign-crds)", what)
		if d.changed(what) {
			d.log.Error(err, "this controller does not lead")
		}
		return err
	case len(lacks) > 0 && d.changed(what):
		d.log.Info("the custom resource definitions are those of another version, apply ours: chancery install", "lacking", what)
	case unread != nil:
		d.log.Info("the custom resource definitions are not compared with ours, because the controller may not read them", "error", unread.Error())
	}
	close(d.fit)
	return nil
}

// changed reports whether something else is to be logged than the last time.
func (d *definitions) changed(what string) bool {
	before := d.said
	d.said = what
	return before != what
}

// ready is a check of readiness: a rolling update stops where the new controller would not lead.
func (d *definitions) ready(*http.Request) error {
	select {
	case <-d.fit:
		return nil
	default:
		return errors.New("the custom resource definitions were not found to be fit yet: the log says why")
	}
}

// inAll joins names, of which no more than a few are needed to know what happened.
func inAll(names []string) string {
	const few = 12
	if more := len(names) - few; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), more)
	}
	return strings.Join(names, ", ")
}

// comparison is the comparison of a definition with ours.
type comparison struct {
	fields, rules []string // those of ours that the other one lacks, each with the kind and its path
	same          int      // how many rules both have
}

// CompareDefinitions compares a custom resource definition of a cluster with ours. It returns the fields and the rules
// that their definition lacks. foreign says that somebody else has made it: something is missing, and the definition
// has none of our rules, or not our annotation. The annotation may survive when a definition is applied over ours.
func CompareDefinitions(our, their *apiextensionsv1.CustomResourceDefinition) (fields, rules []string, foreign bool) {
	c := comparison{}
	for _, version := range our.Spec.Versions {
		at := slices.IndexFunc(their.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version.Name })
		if at < 0 || their.Spec.Versions[at].Schema == nil {
			c.fields = append(c.fields, fmt.Sprintf("%s %s", our.Spec.Names.Kind, version.Name))
			continue
		}
		c.schemas(our.Spec.Names.Kind, version.Schema.OpenAPIV3Schema, their.Spec.Versions[at].Schema.OpenAPIV3Schema)
	}
	return c.fields, c.rules, len(c.fields)+len(c.rules) > 0 && (c.same == 0 || their.Annotations[api.DefinitionAnnotation] == "")
}

func (c *comparison) schemas(path string, our, their *apiextensionsv1.JSONSchemaProps) {
	if our == nil {
		return
	}
	if their == nil {
		c.fields = append(c.fields, "the field "+path)
		return
	}
	for _, rule := range our.XValidations {
		if slices.ContainsFunc(their.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			c.same++
			continue
		}
		c.rules = append(c.rules, fmt.Sprintf("the rule %q of %s", cmp.Or(rule.Message, rule.Rule), path))
	}
	for _, name := range slices.Sorted(maps.Keys(our.Properties)) {
		field := our.Properties[name]
		var theirs *apiextensionsv1.JSONSchemaProps
		if f, found := their.Properties[name]; found {
			theirs = &f
		}
		c.schemas(path+"."+name, &field, theirs)
	}
	if our.Items != nil && their.Items != nil {
		c.schemas(path+"[]", our.Items.Schema, their.Items.Schema)
	}
	if our.AdditionalProperties != nil && their.AdditionalProperties != nil {
		c.schemas(path+"[]", our.AdditionalProperties.Schema, their.AdditionalProperties.Schema)
	}
}
