package client

import "time"

// Action names what a request was for. The values are label values of the metrics
// certmanager_http_acme_client_* (spec §5.2 and §9.1).
type Action string

// The actions. A nonce request carries the action it was made for.
const (
	ActionDiscover                Action = "discover"
	ActionRegisterAccount         Action = "register_account"
	ActionGetRegistration         Action = "get_registration"
	ActionUpdateRegistration      Action = "update_registration"
	ActionRolloverKey             Action = "rollover_key"
	ActionAuthorizeOrder          Action = "authorize_order"
	ActionGetOrder                Action = "get_order"
	ActionCreateOrderCert         Action = "create_order_cert"
	ActionFetchCert               Action = "fetch_cert"
	ActionRevokeCert              Action = "revoke_cert"
	ActionAcceptChallenge         Action = "accept_challenge"
	ActionGetAuthorization        Action = "get_authorization"
	ActionDeactivateAuthorization Action = "deactivate_authorization"
	ActionGetRenewalInfo          Action = "get_renewal_info"
)

// Observation is one HTTP request that is over.
type Observation struct {
	// Action is what the request was for.
	Action Action
	// Method is the HTTP method.
	Method string
	// Scheme and Host are those of the URL.
	Scheme, Host string
	// Status is the HTTP status; 0 if no answer came (the metrics say 999, spec §9.1).
	Status int
	// Duration is the time from sending to the end of the answer's body.
	Duration time.Duration
}
