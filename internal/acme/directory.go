package acme

import (
	"errors"
	"fmt"
)

// ErrProfilesUnsupported says that the server's directory advertises no profiles at all. The text is that of spec §5.2.
var ErrProfilesUnsupported = errors.New("acme: certificate authority does not support profiles")

// ErrProfileUnknown says that the server advertises profiles, but not this one; errors.Is
// finds it in what CheckProfile returns.
var ErrProfileUnknown = errors.New("acme: certificate authority does not advertise a profile with name")

// Directory lists a server's resources (RFC 8555 §7.1.1).
type Directory struct {
	// NewNonce is where nonces come from (§7.2).
	NewNonce string `json:"newNonce"`
	// NewAccount registers (§7.3).
	NewAccount string `json:"newAccount"`
	// NewOrder applies for a certificate (§7.4).
	NewOrder string `json:"newOrder"`
	// RevokeCert revokes (§7.6).
	RevokeCert string `json:"revokeCert"`
	// KeyChange replaces the account key (§7.3.5).
	KeyChange string `json:"keyChange"`
	// RenewalInfo is the base of renewal information URLs (RFC 9773 §4.1); "" without ARI.
	RenewalInfo string `json:"renewalInfo,omitempty"`
	// Meta is about the server.
	Meta DirectoryMeta `json:"meta"`
}

// DirectoryMeta is the directory's "meta" object (RFC 8555 §7.1.1).
type DirectoryMeta struct {
	// Profiles are names with descriptions (draft-ietf-acme-profiles §3).
	Profiles map[string]string `json:"profiles,omitempty"`
	// CAAIdentities are the names that the CA goes by in CAA records (RFC 8659).
	CAAIdentities []string `json:"caaIdentities,omitempty"`
}

// CheckProfile tells whether an order may name the profile: nil for an advertised one or "",
// else ErrProfilesUnsupported or an error that is ErrProfileUnknown.
func (d *Directory) CheckProfile(name string) error {
	if name == "" {
		return nil
	}
	if len(d.Meta.Profiles) == 0 {
		return ErrProfilesUnsupported
	}
	if _, ok := d.Meta.Profiles[name]; !ok {
		return fmt.Errorf("%w %s", ErrProfileUnknown, name)
	}
	return nil
}
