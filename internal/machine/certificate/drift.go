package certificate

import (
	"fmt"
	"slices"
	"time"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	cmmeta "chancery.dev/api/meta/v1"
	"chancery.dev/internal/cause"
	"chancery.dev/internal/machine/facts"
)

// Why a Secret is repaired (spec §2.6). These words are for the log only.
const (
	driftMarks    = "SecretManagedMetadataMismatch"
	driftTemplate = "SecretTemplateMismatch"
	driftFormats  = "AdditionalOutputFormatsMismatch"
	driftOwner    = "SecretOwnerRefMismatch"
	driftKeystore = "SecretMismatch"
	driftRoots    = "OlderRootsMismatch"
)

// ReasonSecretNotRepaired is the reason of the condition Issuing of a Certificate whose Secret holds what was issued,
// but cannot be repaired in other respects.
const ReasonSecretNotRepaired = "SecretNotRepaired"

const (
	// repairPause is the least time between two repairs of a Secret: whoever undoes them
	// must not keep us busy.
	repairPause = 10 * time.Second
	// refusedPause is the same after a repair that was refused. What a policy, or a right,
	// had against it may change without an event.
	refusedPause = 10 * time.Minute
)

// broken reports whether the Secret, which holds what was issued, is not as the
// Certificate wants it otherwise. What repairing did not mend is left as it is until
// the Secret or the Certificate changes; what could not be repaired is tried again.
func (d *decision) broken() bool {
	f := d.Secret
	if f == nil || f.Leaf == nil || !f.HasKey || f.KeyError != nil || f.Named && f.CertificateName != d.crt.Name {
		return false
	}
	if d.tried() && d.RepairError == "" || facts.WantsKeystores(&d.crt.Spec) && d.Passwords.Error != nil {
		return false
	}
	return d.drift() != ""
}

// tried reports whether the Secret is what a repair has left it as.
func (d *decision) tried() bool { return d.Repaired != "" && d.Repaired == d.Secret.Version }

// repairs reports whether the Secret is to be repaired now.
func (d *decision) repairs() bool { return d.broken() && !d.now.Before(d.repairDue()) }

// repairDue returns the first time at which the Secret may be repaired again.
func (d *decision) repairDue() time.Time {
	switch {
	case d.RepairedAt.IsZero():
		return time.Time{}
	case d.tried() && d.RepairError != "":
		return d.RepairedAt.Add(refusedPause)
	default:
		return d.RepairedAt.Add(repairPause)
	}
}

// sayUnrepaired says, once, what keeps the Secret from being as the Certificate wants
// it, and takes that back when nothing does any more.
func (d *decision) sayUnrepaired(a *Action) {
	said := d.notIssuing(ReasonSecretNotRepaired)
	event, why, is := ReasonSecretNotRepaired, "", d.RepairCause
	switch {
	case d.drift() == "":
	case facts.WantsKeystores(&d.crt.Spec) && d.Passwords.Error != nil:
		event, why = certmanagerv1.CertificateEventKeystorePassword, d.Passwords.Error.Error()
		is = cause.New(cause.PasswordMissing, "", "", why)
	case d.tried():
		why = d.RepairError
	}
	if why == "" {
		if said != nil {
			certmanagerv1.RemoveCertificateCondition(d.crt, certmanagerv1.CertificateConditionIssuing)
			d.setRestCause(nil)
		}
		return
	}
	message := fmt.Sprintf("The certificate is good, but Secret %q cannot be brought up to date: %s", d.crt.Spec.SecretName, why)
	if is == nil {
		is = cause.New(cause.Other, "", "", message)
	}
	if news := d.tell(is); said == nil || news {
		d.setIssuing(cmmeta.ConditionFalse, ReasonSecretNotRepaired, message)
		a.warn(event, message)
	}
}

// drift returns the first thing that is not as the Certificate wants it, of what can
// be mended without an issuer; empty for nothing (spec §2.6).
func (d *decision) drift() string {
	switch {
	case d.Secret.MarksWrong:
		return driftMarks
	case d.templateDrifted():
		return driftTemplate
	case d.extrasDrifted(certmanagerv1.DERKeyKey, certmanagerv1.CombinedPEMKey):
		return driftFormats
	case d.ownerDrifted():
		return driftOwner
	case d.extrasDrifted(certmanagerv1.PKCS12KeystoreKey, certmanagerv1.PKCS12TruststoreKey, certmanagerv1.JKSKeystoreKey, certmanagerv1.JKSTruststoreKey),
		d.keystoresDrifted():
		return driftKeystore
	case d.OlderRoots == facts.DropOlderRoots && d.Secret.Roots > 1:
		return driftRoots
	default:
		return ""
	}
}

func (d *decision) templateDrifted() bool {
	template := d.crt.Spec.SecretTemplate
	if template == nil {
		template = &certmanagerv1.CertificateSecretTemplate{}
	}
	o := &d.Secret.Ownership
	return differs(template.Labels, o.Labels, o.Known, facts.IsOurLabel) ||
		differs(template.Annotations, o.Annotations, o.Known, facts.IsOurAnnotation)
}

// differs reports whether what is there lacks something that is wanted, or, where it
// is known to be ours, has something that is not.
func differs(want map[string]string, have map[string]facts.Digest, ours bool, except func(string) bool) bool {
	n := 0
	for key, value := range want {
		if except(key) {
			continue
		}
		n++
		if got, ok := have[key]; !ok || got != facts.DigestOf(value) {
			return true
		}
	}
	return ours && len(have) != n
}

// extrasDrifted reports whether one of these keys of data is missing, is not ours, or
// is ours and not wanted.
func (d *decision) extrasDrifted(keys ...string) bool {
	wanted := facts.WantedExtras(&d.crt.Spec, d.Secret.HasCA)
	for _, key := range keys {
		e, there := d.Secret.Extras[key]
		if slices.Contains(wanted, key) && (!there || e.Stale || !e.Owned) {
			return true
		}
		if !slices.Contains(wanted, key) && there && e.Owned && d.Secret.Ownership.Known {
			return true
		}
	}
	return false
}

func (d *decision) ownerDrifted() bool {
	f := d.Secret
	want := facts.OwnedBy(d.crt)
	if d.OwnerReference && (f.Owner == nil || !cmmeta.Equal(*f.Owner, want)) {
		return true
	}
	return f.Ownership.Known && slices.Contains(f.Ownership.Owners, d.crt.UID) != d.OwnerReference
}

// keystoresDrifted reports whether the keystores were made with other passwords or
// settings than are wanted. Of keystores without a mark, which cert-manager has made,
// nothing is known but that they are there.
func (d *decision) keystoresDrifted() bool {
	f := d.Secret
	if f.KeystoreMark == "" || d.Passwords.Error != nil {
		return false
	}
	return f.KeystoreMark != facts.KeystoreMark(f.Seal, f.Leaf.ID, &d.crt.Spec, d.Passwords)
}
