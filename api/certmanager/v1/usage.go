package v1

// KeyUsage names one thing that a key may be used for: a bit of the key usage extension or an extended
// key usage (RFC 5280 §4.2.1.3, §4.2.1.12).
// +kubebuilder:validation:Enum=signing;digital signature;content commitment;key encipherment;key agreement;data encipherment;cert sign;crl sign;encipher only;decipher only;any;server auth;client auth;code signing;email protection;s/mime;ipsec end system;ipsec tunnel;ipsec user;timestamping;ocsp signing;microsoft sgc;netscape sgc
type KeyUsage string

// The key usages. Signing and digital signature mean the same bit; S/MIME and e-mail protection mean the
// same extended usage.
const (
	UsageSigning           KeyUsage = "signing"
	UsageDigitalSignature  KeyUsage = "digital signature"
	UsageContentCommitment KeyUsage = "content commitment"
	UsageKeyEncipherment   KeyUsage = "key encipherment"
	UsageKeyAgreement      KeyUsage = "key agreement"
	UsageDataEncipherment  KeyUsage = "data encipherment"
	UsageCertSign          KeyUsage = "cert sign"
	UsageCRLSign           KeyUsage = "crl sign"
	UsageEncipherOnly      KeyUsage = "encipher only"
	UsageDecipherOnly      KeyUsage = "decipher only"
	UsageAny               KeyUsage = "any"
	UsageServerAuth        KeyUsage = "server auth"
	UsageClientAuth        KeyUsage = "client auth"
	UsageCodeSigning       KeyUsage = "code signing"
	UsageEmailProtection   KeyUsage = "email protection"
	UsageSMIME             KeyUsage = "s/mime"
	UsageIPsecEndSystem    KeyUsage = "ipsec end system"
	UsageIPsecTunnel       KeyUsage = "ipsec tunnel"
	UsageIPsecUser         KeyUsage = "ipsec user"
	UsageTimestamping      KeyUsage = "timestamping"
	UsageOCSPSigning       KeyUsage = "ocsp signing"
	UsageMicrosoftSGC      KeyUsage = "microsoft sgc"
	UsageNetscapeSGC       KeyUsage = "netscape sgc"
)

// DefaultKeyUsages returns the usages that an empty list means, for keys that do more than sign.
func DefaultKeyUsages() []KeyUsage {
	return []KeyUsage{UsageDigitalSignature, UsageKeyEncipherment}
}
