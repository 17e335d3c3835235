package vault

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
)

// AWSConfig says where identities of AWS come from. The package uses no SDK: it needs two calls of STS and one
// signature.
type AWSConfig struct {
	// IssuerAmbient and ClusterIssuerAmbient allow issuers of the kind the credentials
	// that the controller itself finds in its surroundings.
	IssuerAmbient, ClusterIssuerAmbient bool
	// Getenv reads the environment for them.
	Getenv func(string) string
	// STS returns the address of the Security Token Service of a region; nil means Amazon's.
	STS func(region string) string
	// Metadata is the address of the instance's metadata service; empty means http://169.254.169.254.
	Metadata string
}

const (
	defaultRegion = "us-east-1"
	stsAudience   = "sts.amazonaws.com"
	stsVersion    = "2011-06-15"
	formType      = "application/x-www-form-urlencoded; charset=utf-8"
	// serverIDHeader binds a login to one Vault server.
	serverIDHeader = "X-Vault-AWS-IAM-Server-ID"
	// awsSession names the session that a role is assumed in.
	awsSession = "cert-manager"
)

// stsAddress is the address of STS. Vault sends a signed request to the global service by default, which is us-east-1.
func (c *AWSConfig) stsAddress(region string) string {
	switch {
	case c.STS != nil:
		return c.STS(region)
	case region == defaultRegion:
		return "https://sts.amazonaws.com/"
	case strings.HasPrefix(region, "cn-"):
		return "https://sts." + region + ".amazonaws.com.cn/"
	default:
		return "https://sts." + region + ".amazonaws.com/"
	}
}

// byAWS logs in by a GetCallerIdentity that we sign and Vault sends.
func (p *plan) byAWS(context.Context) error {
	auth := p.spec.Auth.AWS
	switch {
	case auth.Role == "":
		return invalid("spec.vault.auth.aws.role: must not be empty: name the Vault role")
	case strings.ContainsFunc(auth.Region, notInRegion):
		// It becomes part of the name of the host that a token is sent to.
		return invalid("spec.vault.auth.aws.region: %q is no region: use one such as eu-west-1", auth.Region)
	case (auth.ServiceAccountRef != nil) != (auth.IAMRoleARN != ""):
		return invalid("spec.vault.auth.aws: serviceAccountRef and iamRoleArn belong together: set both or none")
	case auth.ServiceAccountRef == nil && p.clustered() && !p.AWS.ClusterIssuerAmbient:
		return notLent(certmanagerv1.ClusterIssuerKind, "cluster-issuer")
	case auth.ServiceAccountRef == nil && !p.clustered() && !p.AWS.IssuerAmbient:
		return notLent(certmanagerv1.IssuerKind, "issuer")
	}
	aws := &awsLogin{AWSConfig: &p.AWS, spec: auth, region: auth.Region, http: newHTTPClient(nil, nil)} // Amazon's, or the operator's
	if auth.ServiceAccountRef != nil {
		aws.token = p.tokenOf(auth.ServiceAccountRef, stsAudience)
	} else if own := p.AWS.Getenv("AWS_REGION"); own != "" {
		aws.region = own // ambient credentials come with a region of their own (spec §5.9, route53)
	}
	aws.region = cmp.Or(aws.region, defaultRegion)
	p.login = func(ctx context.Context, s *session) (lease, error) {
		body, err := aws.body(ctx, s)
		switch {
		case fault.Of(err) != nil:
			return lease{}, err
		case err != nil:
			return lease{}, stageLogin.away("get AWS credentials to log in to Vault: %s; it is tried again", unreachable(err))
		}
		return s.authenticate(ctx, loginPath(auth.Path, certmanagerv1.DefaultVaultAWSMountPath), body)
	}
	return nil
}

// notInRegion reports whether a character is in the name of no region.
func notInRegion(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
}

func notLent(kind, flag string) error {
	return invalid("spec.vault.auth.aws: this controller lends its own AWS credentials to no %s: set serviceAccountRef and iamRoleArn, or start it with --%s-ambient-credentials", kind, flag)
}

// clustered reports whether the issuer is a ClusterIssuer.
func (p *plan) clustered() bool { return p.issuer.GetNamespace() == "" }

// awsLogin is how one issuer logs in by AWS.
type awsLogin struct {
	*AWSConfig

	spec   *certmanagerv1.VaultAWSAuth
	region string
	http   *http.Client
	// token gives the service account's token; nil for ambient credentials.
	token func(context.Context) (string, error)
}

// body is the body of the login: the parts of the signed request, as Vault's method aws of type iam takes them.
func (a *awsLogin) body(ctx context.Context, s *session) (map[string]any, error) {
	id, err := a.identity(ctx)
	if err != nil {
		return nil, err
	}
	address := a.stsAddress(a.region)
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	r := &awsRequest{
		method: http.MethodPost, host: at.Host, body: "Action=GetCallerIdentity&Version=" + stsVersion,
		region: a.region, service: "sts", header: map[string]string{"Content-Type": formType},
	}
	if a.spec.VaultHeaderValue != "" {
		r.header[serverIDHeader] = a.spec.VaultHeaderValue
	}
	r.sign(id, s.now())
	headers, err := json.Marshal(r.header)
	if err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	return map[string]any{
		"role": a.spec.Role, "iam_http_request_method": r.method, "iam_request_url": encode([]byte(address)),
		"iam_request_body": encode([]byte(r.body)), "iam_request_headers": encode(headers),
	}, nil
}

func (a *awsLogin) identity(ctx context.Context) (awsIdentity, error) {
	if a.token != nil {
		token, err := a.token(ctx)
		if err != nil {
			return awsIdentity{}, err
		}
		return a.assume(ctx, a.spec.IAMRoleARN, token)
	}
	return a.ambient(ctx)
}

// assume exchanges a service account's token for the credentials of a role (AssumeRoleWithWebIdentity).
func (a *awsLogin) assume(ctx context.Context, role, token string) (awsIdentity, error) {
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {stsVersion},
		"RoleArn": {role}, "RoleSessionName": {awsSession}, "WebIdentityToken": {token},
	}
	text, err := a.fetch(ctx, http.MethodPost, a.stsAddress(a.region), http.Header{"Content-Type": {formType}}, form.Encode())
	if err != nil {
		return awsIdentity{}, fmt.Errorf("assume the AWS role %s: %w", role, err)
	}
	var reply struct {
		Credentials struct {
			AccessKeyID     string `xml:"AccessKeyId"`
			SecretAccessKey string
			SessionToken    string
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if err := xml.Unmarshal(text, &reply); err != nil {
		return awsIdentity{}, fmt.Errorf("assume the AWS role %s: STS does not answer in XML", role)
	}
	c := reply.Credentials
	return complete(awsIdentity{c.AccessKeyID, c.SecretAccessKey, c.SessionToken}, "STS")
}

func complete(id awsIdentity, from string) (awsIdentity, error) {
	if id.accessKey == "" || id.secretKey == "" {
		return awsIdentity{}, fmt.Errorf("%s gave no credentials", from)
	}
	return id, nil
}

// ambient looks for credentials where AWS puts them: the environment, a web identity's
// file (IRSA), a container's agent (EKS Pod Identity, ECS), the instance's metadata.
func (a *awsLogin) ambient(ctx context.Context) (awsIdentity, error) {
	if key := a.Getenv("AWS_ACCESS_KEY_ID"); key != "" {
		return complete(awsIdentity{key, a.Getenv("AWS_SECRET_ACCESS_KEY"), a.Getenv("AWS_SESSION_TOKEN")}, "the environment")
	}
	if file, role := a.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"), a.Getenv("AWS_ROLE_ARN"); file != "" && role != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return awsIdentity{}, err
		}
		return a.assume(ctx, role, trimmed(token))
	}
	if address := a.containerAddress(); address != "" {
		return a.fromContainer(ctx, address)
	}
	return a.fromInstance(ctx)
}

func (a *awsLogin) containerAddress() string {
	if path := a.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); path != "" {
		return "http://169.254.170.2" + path
	}
	return a.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
}

func (a *awsLogin) fromContainer(ctx context.Context, address string) (awsIdentity, error) {
	header := http.Header{}
	token := a.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := a.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return awsIdentity{}, err
		}
		token = trimmed(text)
	}
	if token != "" {
		header.Set("Authorization", token)
	}
	return a.fetchIdentity(ctx, address, header)
}

// fromInstance asks the metadata service, version 2.
func (a *awsLogin) fromInstance(ctx context.Context) (awsIdentity, error) {
	base := cmp.Or(a.Metadata, "http://169.254.169.254")
	token, err := a.fetch(ctx, http.MethodPut, base+"/latest/api/token", http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"300"}}, "")
	if err != nil {
		return awsIdentity{}, fmt.Errorf("find AWS credentials: none in the environment, and the instance's metadata service gave none: %w", err)
	}
	header := http.Header{"X-Aws-Ec2-Metadata-Token": {trimmed(token)}}
	const roles = "/latest/meta-data/iam/security-credentials/"
	role, err := a.fetch(ctx, http.MethodGet, base+roles, header, "")
	if err != nil {
		return awsIdentity{}, fmt.Errorf("find the instance's AWS role: %w", err)
	}
	name, _, _ := strings.Cut(trimmed(role), "\n")
	return a.fetchIdentity(ctx, base+roles+url.PathEscape(name), header)
}

// fetchIdentity reads credentials in the form that agents and metadata share.
func (a *awsLogin) fetchIdentity(ctx context.Context, address string, header http.Header) (awsIdentity, error) {
	text, err := a.fetch(ctx, http.MethodGet, address, header, "")
	if err != nil {
		return awsIdentity{}, fmt.Errorf("read AWS credentials: %w", err)
	}
	var c struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string `json:"SecretAccessKey"`
		Token           string `json:"Token"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return awsIdentity{}, fmt.Errorf("read AWS credentials: %s does not answer in JSON", address)
	}
	return complete(awsIdentity{c.AccessKeyID, c.SecretAccessKey, c.Token}, address)
}

// fetch makes one request of AWS.
func (a *awsLogin) fetch(ctx context.Context, method, address string, header http.Header, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	resp, err := a.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return text, nil
	}
	refused := fmt.Errorf("%s answered %d: %s", address, resp.StatusCode, fault.Quote(awsError(resp.StatusCode, text)))
	if resp.StatusCode >= http.StatusInternalServerError {
		return nil, refused
	}
	return nil, stageLogin.denied("log in to Vault by AWS: %w", refused)
}

// awsError returns what an error of STS says. An answer in another form is not quoted.
func awsError(code int, text []byte) string {
	var reply struct {
		Code    string `xml:"Error>Code"`
		Message string `xml:"Error>Message"`
	}
	if xml.Unmarshal(text, &reply) == nil && reply.Code != "" {
		return reply.Code + ": " + reply.Message
	}
	return http.StatusText(code)
}
