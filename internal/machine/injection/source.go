package injection

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
)

// Source says where the CA of an injectable comes from. The zero value is no source.
type Source struct {
	// Annotation is the key of the annotation that asks.
	Annotation string
	// Name is the Secret or the Certificate that the annotation names; empty for the CA of the API server.
	Name types.NamespacedName
}

// SourceOf reads the annotations of an injectable: the first one that is there counts (spec §7). The error says what is
// wrong with the annotation.
func SourceOf(annotations map[string]string) (Source, error) {
	for _, key := range []string{certmanagerv1.InjectCAFromSecretAnnotation, certmanagerv1.InjectCAFromAnnotation} {
		value, there := annotations[key]
		if !there {
			continue
		}
		namespace, name, ok := strings.Cut(value, "/")
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			what := "Secret"
			if key == certmanagerv1.InjectCAFromAnnotation {
				what = "Certificate"
			}
			return Source{}, fmt.Errorf("the annotation %s must be a %s as <namespace>/<name>, not %.300q", key, what, value)
		}
		return Source{Annotation: key, Name: types.NamespacedName{Namespace: namespace, Name: name}}, nil
	}
	switch value, there := annotations[certmanagerv1.InjectAPIServerCAAnnotation]; {
	case !there, value == "false":
		return Source{}, nil
	case value != certmanagerv1.InjectAPIServerCAAnnotationTrue:
		return Source{}, fmt.Errorf("the annotation %s must be \"true\" or \"false\", not %.300q", certmanagerv1.InjectAPIServerCAAnnotation, value)
	}
	return Source{Annotation: certmanagerv1.InjectAPIServerCAAnnotation}, nil
}

// Keep returns the annotations that decisions depend on; nil if there is none of them.
func Keep(annotations map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{
		certmanagerv1.InjectCAFromSecretAnnotation, certmanagerv1.InjectCAFromAnnotation, certmanagerv1.InjectAPIServerCAAnnotation,
		certmanagerv1.DropOldCAsAfterAnnotation, certmanagerv1.OldCAsAnnotation,
	} {
		if value, there := annotations[key]; there {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// IsCertificate reports whether the source is a Certificate.
func (s Source) IsCertificate() bool { return s.Annotation == certmanagerv1.InjectCAFromAnnotation }

// IsAPIServer reports whether the source is the CA of the API server.
func (s Source) IsAPIServer() bool { return s.Annotation == certmanagerv1.InjectAPIServerCAAnnotation }

// String names the source for people.
func (s Source) String() string {
	switch {
	case s.IsAPIServer():
		return "the API server"
	case s.IsCertificate():
		return "Certificate " + s.Name.String()
	default:
		return "Secret " + s.Name.String()
	}
}
