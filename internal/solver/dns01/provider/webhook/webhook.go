// Package webhook writes challenge records through webhook solvers, which take a ChallengePayload (spec §5.9). A
// webhook solver is an aggregated API in the cluster, or an HTTPS server. Solvers written for cert-manager work
// unchanged.
//
// The controller calls an aggregated API through the API server, with the controller's own identity. This identity
// needs the RBAC verb create on the resource with the solver's name, in the solver's API group. The package serves no
// webhook.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	acmev1 "chancery.dev/api/acme/v1"
	"chancery.dev/internal/egress"
	"chancery.dev/internal/fault"
	"chancery.dev/internal/limits"
	"chancery.dev/internal/solver/dns01"
	"chancery.dev/internal/solver/dns01/provider/limit"
)

// The reasons of this package's faults.
const (
	// ReasonFailed: the webhook does not do what is asked.
	ReasonFailed = "WebhookFailed"
	// ReasonUnavailable: the webhook cannot be reached.
	ReasonUnavailable = "WebhookUnavailable"
	// ReasonForbidden: the controller lacks the right to ask the webhook.
	ReasonForbidden = "WebhookForbidden"
)

const (
	// maxBody bounds an answer, in octets.
	maxBody = limits.WebhookBody
	// maxRetryAfter is the longest that a webhook can make its callers wait, in seconds.
	maxRetryAfter = 600
)

// The kind of the payload, whatever group the solver has.
const (
	apiVersion = "webhook.acme.cert-manager.io/v1alpha1"
	kind       = "ChallengePayload"
)

// payload is what is sent and what comes back.
type payload struct {
	metav1.TypeMeta `json:",inline"`
	Request         *request  `json:"request,omitempty"`
	Response        *response `json:"response,omitempty"`
}

// request says what to do.
type request struct {
	UID                     types.UID             `json:"uid"`
	Action                  string                `json:"action"`
	Type                    string                `json:"type"`
	DNSName                 string                `json:"dnsName"`
	Key                     string                `json:"key"`
	ResourceNamespace       string                `json:"resourceNamespace"`
	ResolvedFQDN            string                `json:"resolvedFQDN,omitempty"`
	ResolvedZone            string                `json:"resolvedZone,omitempty"`
	AllowAmbientCredentials bool                  `json:"allowAmbientCredentials"`
	Config                  *apiextensionsv1.JSON `json:"config,omitempty"`
}

// response says whether it was done.
type response struct {
	UID     types.UID      `json:"uid"`
	Success bool           `json:"success"`
	Status  *metav1.Status `json:"status,omitempty"`
}

// Client asks webhooks through one API server.
type Client struct {
	http   *http.Client
	base   *url.URL
	limits *limit.Limits
}

// New makes a Client with the identity of rc. Without limits, there are none.
func New(rc *rest.Config, limits *limit.Limits) (*Client, error) {
	rc = rest.CopyConfig(rc)
	shared, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, err
	}
	client := *shared
	// The client authenticates every request, and a webhook may redirect to any address.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(rc)
	if err != nil {
		return nil, err
	}
	return &Client{http: &client, base: base, limits: limits}, nil
}

// Provider implements dns01.Provider.
type Provider struct {
	http    *http.Client
	address string
	// name of the webhook, and of the server that is asked, for messages.
	name, whom string
	userAgent  string
	// direct says that the webhook itself is asked, not the API server.
	direct bool
	config *acmev1.WebhookProvider
	caller dns01.Use
	limits *limit.Limits
	// key identifies the webhook and its configuration for the limits: which credentials it uses is not known.
	key string
	// explain returns an error for a status that another server has sent than the webhook, else nil.
	explain func(p *Provider, code int) error
}

var _ dns01.Provider = (*Provider)(nil)

// Provider makes a Provider of the API's configuration, which names an aggregated API.
func (c *Client) Provider(config *acmev1.WebhookProvider, caller dns01.Use) (*Provider, error) {
	if c == nil {
		return nil, fault.Terminal(ReasonUnavailable, "webhook: this controller has no API server to reach webhooks by")
	}
	for _, name := range []string{config.GroupName, config.SolverName} {
		if problems := content.IsPathSegmentName(name); len(problems) > 0 || name == "" {
			return nil, fault.Terminal(dns01.ReasonInvalidConfig, "webhook: groupName or solverName is wrong: %q %s", name, strings.Join(problems, ", "))
		}
	}
	key, err := limit.KeyOf("webhook", config, caller.Namespace)
	if err != nil {
		return nil, err
	}
	return &Provider{
		http: c.http, address: c.base.JoinPath("apis", url.PathEscape(config.GroupName), "v1alpha1", url.PathEscape(config.SolverName)).String(),
		name: fmt.Sprintf("webhook %s/%s", config.GroupName, config.SolverName), whom: "the API server",
		config: config, caller: caller, limits: c.limits, key: key, explain: aggregated,
	}, nil
}

// Present asks the webhook to add the record.
func (p *Provider) Present(ctx context.Context, r dns01.Record) error {
	return p.limited(ctx, "Present", r)
}

// CleanUp asks the webhook to remove the record.
func (p *Provider) CleanUp(ctx context.Context, r dns01.Record) error {
	return p.limited(ctx, "CleanUp", r)
}

// limited asks, within the limits.
func (p *Provider) limited(ctx context.Context, action string, r dns01.Record) error {
	call := limit.Call{Key: p.key, Provider: p.name, ID: action + " " + r.FQDN + " " + r.Value}
	return p.limits.Do(ctx, call, func() error { return p.ask(ctx, action, r) })
}

func (p *Provider) ask(ctx context.Context, action string, r dns01.Record) error {
	body, err := json.Marshal(payload{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Request: &request{
		UID: p.caller.UID, Action: action, Type: "dns-01", DNSName: r.Domain, Key: r.Value,
		ResourceNamespace: p.caller.Namespace, ResolvedFQDN: r.FQDN, ResolvedZone: r.Zone,
		AllowAmbientCredentials: p.caller.Ambient, Config: p.config.Config,
	}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if p.userAgent != "" {
		req.Header.Set("User-Agent", p.userAgent)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		if alert := new(net.OpError); p.direct && errors.As(err, &alert) && alert.Op == "remote error" {
			return fault.ClassCredential.After(dns01.MendPeriod, ReasonForbidden, "%s: the server ends the connection: %w: "+
				"does it want a client certificate, and take that of clientCertificateSecretRef?", p.name, alert.Err)
		}
		return fault.ClassUnavailable.After(0, dns01.ReasonUnreachable, "%s: asking %s: %s", p.name, p.whom, egress.Cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // read as far as needed
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if len(text) > maxBody || len(text) == maxBody && err != nil { // the transport bounds it, too
		return fault.After(dns01.MendPeriod, ReasonFailed, "%s: the answer is longer than %d MiB", p.name, maxBody>>20)
	}
	if err != nil {
		return fmt.Errorf("%s: reading the answer: %s", p.name, egress.Cause(err))
	}
	return p.judge(resp.StatusCode, text)
}

// aggregated says what a status means that is the API server's.
func aggregated(p *Provider, code int) error {
	switch code {
	case http.StatusForbidden:
		return fault.ClassCredential.After(dns01.MendPeriod, ReasonForbidden, "%s: this controller may not create %q in the API group %q: "+
			"grant it with the webhook's ClusterRole", p.name, p.config.SolverName, p.config.GroupName)
	case http.StatusNotFound:
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonUnavailable, "%s: the API server does not serve it: is the webhook installed, "+
			"with an APIService v1alpha1.%s, and is its solver called %q?", p.name, p.config.GroupName, p.config.SolverName)
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fault.ClassUnavailable.After(dns01.MendPeriod, ReasonUnavailable, "%s: the API server cannot reach it: "+
			"look at APIService v1alpha1.%s and at the webhook's Pods", p.name, p.config.GroupName)
	}
	return nil
}

// judge says what an answer means and what to do about it.
func (p *Provider) judge(code int, body []byte) error {
	if err := p.explain(p, code); err != nil {
		return err
	}
	if code/100 != 2 {
		status := &metav1.Status{}
		_ = json.Unmarshal(body, status) // without a message the code has to do
		status.Code = int32(code)        //nolint:gosec // three digits
		return failed(status, "%s: status %d %s", p.name, code, fault.Quote(status.Message))
	}
	var answer payload
	if err := json.Unmarshal(body, &answer); err != nil || answer.Response == nil {
		return fault.After(dns01.MendPeriod, ReasonFailed, "%s: the answer is not a %s with a response", p.name, kind)
	}
	if answer.Response.Success {
		return nil
	}
	if answer.Response.Status == nil || answer.Response.Status.Message == "" {
		return fault.After(dns01.MendPeriod, ReasonFailed, "%s: it failed and does not say why: see its log", p.name)
	}
	return failed(answer.Response.Status, "%s: %s", p.name, fault.Quote(answer.Response.Status.Message))
}

// failed is a failure that a webhook reports. It has a class only if the webhook is throttled or out of order: others
// may concern one record only.
func failed(status *metav1.Status, format string, args ...any) error {
	var class fault.Class
	switch {
	case status.Code == http.StatusTooManyRequests || status.Reason == metav1.StatusReasonTooManyRequests:
		class = fault.ClassRateLimited
		if status.Details != nil {
			if delay := time.Duration(min(status.Details.RetryAfterSeconds, maxRetryAfter)) * time.Second; delay > dns01.MendPeriod {
				return class.AfterExactly(delay, ReasonFailed, format, args...)
			}
		}
	case status.Code == http.StatusServiceUnavailable || status.Reason == metav1.StatusReasonServiceUnavailable:
		class = fault.ClassUnavailable
	}
	return class.After(dns01.MendPeriod, ReasonFailed, format, args...)
}
