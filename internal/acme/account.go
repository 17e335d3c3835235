package acme

// Status is the status of an account, order, authorization or challenge (RFC 8555 §7.1.6).
type Status string

// The statuses of RFC 8555 §7.1.6.
const (
	StatusPending     Status = "pending"
	StatusReady       Status = "ready"
	StatusProcessing  Status = "processing"
	StatusValid       Status = "valid"
	StatusInvalid     Status = "invalid"
	StatusDeactivated Status = "deactivated"
	StatusExpired     Status = "expired"
	StatusRevoked     Status = "revoked"
)

// Account is an account at the CA (RFC 8555 §7.1.2).
type Account struct {
	Meta
	// URL names the account: its "kid".
	URL string `json:"-"`
	// Created says whether this very request made the account (201) or found it (200, §7.3.1).
	Created bool `json:"-"`
	// Status is valid, deactivated or revoked.
	Status Status `json:"status"`
	// Contact are URLs such as mailto:; some CAs keep none and send none back.
	Contact []string `json:"contact,omitempty"`
}

// NewAccountRequest is what newAccount sends (RFC 8555 §7.3).
type NewAccountRequest struct {
	// Contact are URLs such as mailto:someone@example.com; may be empty.
	Contact []string
	// TermsOfServiceAgreed says that the user agrees to the terms in the directory.
	TermsOfServiceAgreed bool
	// ExternalAccount binds to an account outside ACME; nil for none.
	ExternalAccount *ExternalAccount
}

// MACAlgorithm is a JWS MAC algorithm (RFC 7518 §3.2).
type MACAlgorithm string

// The algorithms of an external account binding (RFC 8555 §7.3.4: MAC-based).
const (
	HS256 MACAlgorithm = "HS256"
	HS384 MACAlgorithm = "HS384"
	HS512 MACAlgorithm = "HS512"
)

// ExternalAccount is an account of the CA's own, outside ACME (RFC 8555 §7.3.4).
type ExternalAccount struct {
	// KeyID is the CA's name for the account.
	KeyID string
	// Key is the MAC key, decoded.
	Key []byte
	// Algorithm is the MAC algorithm; "" means HS256.
	Algorithm MACAlgorithm
}
