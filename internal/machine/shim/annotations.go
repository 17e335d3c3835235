package shim

import (
	"crypto/mldsa"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/pki"
)

// bareAddress is an e-mail address without a display name, as the Certificate API takes it.
var bareAddress = regexp.MustCompile(`^("[^"]*"|[^@<>,;:\\\s"]+)@[^@<>,;\s"]+$`)

// reader reads annotations (spec §6.3), and collects what is wrong with them. An empty annotation is none.
type reader struct {
	annotations map[string]string
	problems    []string
	usages      []string // that the annotation about them names
}

// annotate sets the fields of a Certificate that annotations ask for, and says which annotations are wrong.
func annotate(spec *certmanagerv1.CertificateSpec, annotations map[string]string) []string {
	r := &reader{annotations: annotations}
	r.names(spec)
	r.subject(spec)
	r.validity(spec)
	r.key(spec)
	r.secretTemplate(spec)
	return r.problems
}

// each calls set with the value of an annotation that is not empty; the error says what is wrong with the value.
func (r *reader) each(key string, set func(value string) error) {
	value := r.annotations[key]
	if value == "" {
		return
	}
	if err := set(value); err != nil {
		r.problems = append(r.problems, fmt.Sprintf("invalid ingress annotation %s: %s", key, err))
	}
}

// list calls check with each entry of a list with commas, and returns the entries.
func (r *reader) list(key string, check func(entry string) error) (out []string) {
	r.each(key, func(value string) error {
		for entry := range strings.SplitSeq(value, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				return errors.New("has an empty entry: remove the comma")
			}
			if len(out) == limits.CertificateNames {
				return fmt.Errorf("has more than %d entries", limits.CertificateNames)
			}
			if err := check(entry); err != nil {
				return err
			}
			out = append(out, entry)
		}
		return nil
	})
	return out
}

func (r *reader) names(spec *certmanagerv1.CertificateSpec) {
	r.each(certmanagerv1.CommonNameAnnotation, func(value string) error {
		if len(value) > certmanagerv1.MaximumCommonNameLength {
			return fmt.Errorf("has %d bytes, and may have %d: put longer names into %s", len(value), certmanagerv1.MaximumCommonNameLength, certmanagerv1.AltNamesAnnotation)
		}
		spec.CommonName = value
		return nil
	})
	spec.DNSNames = r.list(certmanagerv1.AltNamesAnnotation, func(entry string) error {
		if strings.ContainsFunc(entry, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("/:@", c) }) {
			return fmt.Errorf("%q is no DNS name: write names with commas between them, international ones as in xn--bcher-kva.example; "+
				"IP addresses, URIs and e-mail addresses have annotations of their own", short(entry))
		}
		return nil
	})
	spec.IPAddresses = r.list(certmanagerv1.IPSANsAnnotation, func(entry string) error {
		if ip, err := netip.ParseAddr(entry); err != nil || ip.Zone() != "" {
			return fmt.Errorf("%q is no IP address", short(entry))
		}
		return nil
	})
	spec.URIs = r.list(certmanagerv1.URISANsAnnotation, func(entry string) error {
		if u, err := url.Parse(entry); err != nil || u.Scheme == "" || !pki.IsIA5(u.Host) {
			return fmt.Errorf("%q is no URI: write it as in spiffe://example.com/web", short(entry))
		}
		return nil
	})
	spec.EmailAddresses = r.list(certmanagerv1.EmailSANsAnnotation, func(entry string) error {
		if !bareAddress.MatchString(entry) || !pki.IsIA5(entry) {
			return fmt.Errorf("%q is no bare e-mail address: write it as in name@example.com", short(entry))
		}
		return nil
	})
	r.usages = r.list(certmanagerv1.IngressUsagesAnnotation, func(entry string) error {
		_, err := pki.ParseUsages([]string{short(entry)}, false, nil)
		return err
	})
	if len(r.usages) > 0 {
		spec.Usages = nil
	}
	for _, usage := range r.usages {
		spec.Usages = append(spec.Usages, certmanagerv1.KeyUsage(usage))
	}
}

func (r *reader) subject(spec *certmanagerv1.CertificateSpec) {
	subject := certmanagerv1.X509Subject{SerialNumber: r.annotations[certmanagerv1.SubjectSerialNumberAnnotation]}
	set := subject.SerialNumber != ""
	for key, field := range map[string]*[]string{
		certmanagerv1.OrganizationsAnnotation: &subject.Organizations, certmanagerv1.OrganizationalUnitsAnnotation: &subject.OrganizationalUnits,
		certmanagerv1.CountriesAnnotation: &subject.Countries, certmanagerv1.ProvincesAnnotation: &subject.Provinces,
		certmanagerv1.LocalitiesAnnotation: &subject.Localities, certmanagerv1.PostalCodesAnnotation: &subject.PostalCodes,
		certmanagerv1.StreetAddressesAnnotation: &subject.StreetAddresses,
	} {
		r.each(key, func(value string) error {
			lines := csv.NewReader(strings.NewReader(value))
			record, err := lines.Read()
			if err == nil {
				if slices.Contains(record, "") {
					return errors.New("has an empty entry: remove the comma")
				}
				if _, err = lines.Read(); errors.Is(err, io.EOF) {
					*field, set = record, true
					return nil
				}
			}
			return errors.New(`is no list: write it on one line as in Example,"Example, Inc."`)
		})
	}
	slices.Sort(r.problems) // a map has no order, and an event has to be the same each time
	if set {
		spec.Subject = &subject
	}
}

func (r *reader) validity(spec *certmanagerv1.CertificateSpec) {
	duration := func(key string, least time.Duration) (out *metav1.Duration) {
		r.each(key, func(value string) error {
			d, err := time.ParseDuration(value)
			if err != nil || d < least {
				return fmt.Errorf("%q has to be a duration of at least %s, written as in 360h or 90m", short(value), least)
			}
			out = &metav1.Duration{Duration: d}
			return nil
		})
		return out
	}
	spec.Duration = duration(certmanagerv1.IngressDurationAnnotation, certmanagerv1.MinimumCertificateDuration)
	spec.RenewBefore = duration(certmanagerv1.IngressRenewBeforeAnnotation, certmanagerv1.MinimumRenewBefore)
	number := func(key string, least, most int64) (out *int32) {
		r.each(key, func(value string) error {
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < least || n > most {
				return fmt.Errorf("%q has to be a whole number from %d to %d", short(value), least, most)
			}
			out = new(int32(n))
			return nil
		})
		return out
	}
	const mostRevisions = 1<<31 - 1
	spec.RenewBeforePercentage = number(certmanagerv1.IngressRenewBeforePercentAnnotation, 1, 99)
	spec.RevisionHistoryLimit = number(certmanagerv1.IngressRevisionHistoryLimitAnnotation, 1, mostRevisions)
	r.renewal(spec)
}

// renewal says what the two annotations for the renewal may not be together.
func (r *reader) renewal(spec *certmanagerv1.CertificateSpec) {
	duration := certmanagerv1.DefaultCertificateDuration
	if spec.Duration != nil {
		duration = spec.Duration.Duration
	}
	r.each(certmanagerv1.IngressRenewBeforeAnnotation, func(value string) error {
		switch {
		case spec.RenewBefore == nil:
		case r.annotations[certmanagerv1.IngressRenewBeforePercentAnnotation] != "":
			return fmt.Errorf("excludes %s: remove one", certmanagerv1.IngressRenewBeforePercentAnnotation)
		case spec.RenewBefore.Duration >= duration:
			return fmt.Errorf("%q has to be less than the duration, which is %s", short(value), duration)
		}
		return nil
	})
}

func (r *reader) key(spec *certmanagerv1.CertificateSpec) {
	var key certmanagerv1.CertificatePrivateKey
	one := func(annotation string, set func(string), values ...string) {
		r.each(annotation, func(value string) error {
			if !slices.Contains(values, value) {
				return fmt.Errorf("%q has to be one of %s", short(value), strings.Join(values, ", "))
			}
			set(value)
			return nil
		})
	}
	one(certmanagerv1.IngressKeyAlgorithmAnnotation, func(s string) { key.Algorithm = certmanagerv1.PrivateKeyAlgorithm(s) },
		pki.RSA, pki.ECDSA, pki.Ed25519, pki.MLDSA44, pki.MLDSA65, pki.MLDSA87)
	one(certmanagerv1.IngressKeyEncodingAnnotation, func(s string) { key.Encoding = certmanagerv1.PrivateKeyEncoding(s) },
		string(certmanagerv1.PKCS1), string(certmanagerv1.PKCS8))
	if key.OnlySigns() {
		key.Encoding = certmanagerv1.PKCS8 // the only one
		if r.annotations[certmanagerv1.IngressUsagesAnnotation] == "" {
			spec.Usages = []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature}
		}
		r.each(certmanagerv1.IngressUsagesAnnotation, func(string) error {
			_, err := pki.ParseUsages(r.usages, false, &mldsa.PublicKey{})
			return err
		})
	}
	one(certmanagerv1.IngressKeyRotationPolicyAnnotation, func(s string) { key.RotationPolicy = certmanagerv1.PrivateKeyRotationPolicy(s) },
		string(certmanagerv1.RotationPolicyNever), string(certmanagerv1.RotationPolicyAlways))
	r.each(certmanagerv1.IngressKeySizeAnnotation, func(value string) error {
		size, err := strconv.Atoi(value)
		switch {
		case key.Algorithm == certmanagerv1.Ed25519KeyAlgorithm, key.OnlySigns():
			return nil // there is one size only
		case key.Algorithm == certmanagerv1.ECDSAKeyAlgorithm:
			if err != nil || size != 256 && size != 384 && size != 521 {
				return fmt.Errorf("%q has to be 256, 384 or 521 for ECDSA", short(value))
			}
		case err != nil || size < certmanagerv1.MinimumRSAKeySize || size > certmanagerv1.MaximumRSAKeySize:
			return fmt.Errorf("%q has to be from %d to %d for RSA", short(value), certmanagerv1.MinimumRSAKeySize, certmanagerv1.MaximumRSAKeySize)
		}
		key.Size = size
		return nil
	})
	if key != (certmanagerv1.CertificatePrivateKey{}) {
		spec.PrivateKey = &key
	}
}

func (r *reader) secretTemplate(spec *certmanagerv1.CertificateSpec) {
	r.each(certmanagerv1.IngressSecretTemplateAnnotation, func(value string) error {
		template, decoder := &certmanagerv1.CertificateSecretTemplate{}, json.NewDecoder(strings.NewReader(value))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(template)
		if err == nil {
			if _, end := decoder.Token(); !errors.Is(end, io.EOF) { // More takes a bracket for the end
				err = errors.New("there is more behind it")
			}
		}
		if err != nil {
			return fmt.Errorf(`has to be JSON as in {"annotations": {…}, "labels": {…}}: %s`, fault.Quote(err.Error()))
		}
		for key := range template.Annotations {
			if strings.HasPrefix(key, "cert-manager.io/") {
				return errors.New("annotations may not begin with cert-manager.io/: remove them")
			}
		}
		spec.SecretTemplate = template
		return nil
	})
}
