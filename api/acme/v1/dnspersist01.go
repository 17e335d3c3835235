package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DNSPersist01Solver looks for the TXT record of a DNS-PERSIST-01 challenge
// (draft-ietf-acme-dns-persist-01), and says what it has to be where it is not there.
type DNSPersist01Solver struct {
	// Which of the issuer domain names that the server lists the record begins with. Empty means the first.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	IssuerDomainName string `json:"issuerDomainName,omitempty"`

	// Servers that are asked whether the record can be seen, in place of the zone's authoritative ones:
	// host:port, or the https address of a DNS over HTTPS server.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=192
	// +kubebuilder:validation:XValidation:rule=`self.all(n, n.matches(r'^(https://.+|(\[[0-9A-Fa-f:.]+\]|[^\]\[:/\s]+):[0-9]{1,5})$'))`,message="nameservers: every entry must be host:port, as in 1.1.1.1:53, or the https address of a DNS over HTTPS server"
	Nameservers []string `json:"nameservers,omitempty"`

	// How long before the record's persistUntil to warn. Unset means 90 days: longer than from one renewal
	// of a usual certificate to the next.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self == '0' || self.matches(r'^([0-9]+([.][0-9]*)?(ns|us|ms|s|m|h))+$')`,message="dnsPersist01.warnBefore: must not be negative, written as in 720h"
	WarnBefore *metav1.Duration `json:"warnBefore,omitempty"`
}
