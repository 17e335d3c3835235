package vault

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	acmev1 "chancery.dev/api/acme/v1"
	certmanagerv1 "chancery.dev/api/certmanager/v1"
	"chancery.dev/internal/fault"
)

// amazon stands in for STS, the agent of a container and an instance's metadata.
type amazon struct {
	*httptest.Server

	mu    sync.Mutex
	forms []url.Values
	code  int
	text  string
}

const assumed = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
<SessionToken>session</SessionToken><SecretAccessKey>secret</SecretAccessKey><Expiration>2030-01-02T04:04:05Z</Expiration><AccessKeyId>ASIA</AccessKeyId>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

const inJSON = `{"AccessKeyId":"ASIA","SecretAccessKey":"secret","Token":"session","Expiration":"2030-01-02T04:04:05Z"}`

func newAmazon(t *testing.T) *amazon {
	t.Helper()
	a := &amazon{code: 200, text: assumed}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sts", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(text))
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forms = append(a.forms, form)
		w.WriteHeader(a.code)
		_, _ = io.WriteString(w, a.text)
	})
	guarded := func(header, value, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(header) != value {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, text)
		}
	}
	mux.HandleFunc("GET /agent", guarded("Authorization", "pod", inJSON))
	mux.HandleFunc("PUT /latest/api/token", guarded("X-aws-ec2-metadata-token-ttl-seconds", "300", "imds"))
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/{$}", guarded("X-aws-ec2-metadata-token", "imds", "node\n"))
	mux.HandleFunc("GET /latest/meta-data/iam/security-credentials/node", guarded("X-aws-ec2-metadata-token", "imds", inJSON))
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// signed takes a login apart as Vault does.
type signed struct {
	role, address, body string
	header              map[string]string
}

func readLogin(t *testing.T, c call) signed {
	t.Helper()
	field := func(name string) string {
		text, _ := c.body[name].(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return string(raw)
	}
	if c.body["iam_http_request_method"] != "POST" {
		t.Errorf("method %v", c.body["iam_http_request_method"])
	}
	s := signed{address: field("iam_request_url"), body: field("iam_request_body")}
	s.role, _ = c.body["role"].(string)
	if err := json.Unmarshal([]byte(field("iam_request_headers")), &s.header); err != nil {
		t.Fatal(err)
	}
	return s
}

// check signs anew with the same credentials, and compares.
func (s signed) check(t *testing.T, name, region string, id awsIdentity, at time.Time) {
	t.Helper()
	address, err := url.Parse(s.address)
	if err != nil {
		t.Fatal(err)
	}
	again := &awsRequest{method: "POST", host: address.Host, body: s.body, region: region, service: "sts", header: map[string]string{}}
	for key, value := range s.header {
		if key != "Authorization" {
			again.header[key] = value
		}
	}
	again.sign(id, at)
	if s.header["Authorization"] != again.header["Authorization"] {
		t.Errorf("%s: %s, want %s", name, s.header["Authorization"], again.header["Authorization"])
	}
	if s.body != "Action=GetCallerIdentity&Version=2011-06-15" || s.header["X-Amz-Security-Token"] != id.sessionToken {
		t.Errorf("%s: body %q, header %v", name, s.body, s.header)
	}
}

func TestAWSByServiceAccount(t *testing.T) {
	vault, aws := newStandIn(t, plain), newAmazon(t)
	w := newWorld(t, vault)
	var regions []string
	w.AWS.STS = func(region string) string { regions = append(regions, region); return aws.URL + "/sts" }
	w.AWS.Getenv = func(name string) string { return map[string]string{"AWS_REGION": "eu-north-1"}[name] }
	auth := &certmanagerv1.VaultAWSAuth{
		Role: "web", Region: "eu-west-1", IAMRoleARN: "arn:aws:iam::1:role/x", VaultHeaderValue: "vault.example.com",
		ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "sa", TokenAudiences: []string{"extra"}},
	}
	issuer := w.issuer("team", func(v *certmanagerv1.VaultIssuer) { v.Auth.AWS = auth })
	if _, f := w.probe(issuer); f != nil {
		t.Fatal(f)
	}
	if len(aws.forms) != 1 {
		t.Fatalf("STS was asked %d times", len(aws.forms))
	}
	for key, want := range map[string]string{
		"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:aws:iam::1:role/x",
		"RoleSessionName": "cert-manager", "WebIdentityToken": "team/sa for extra sts.amazonaws.com",
	} {
		if got := aws.forms[0].Get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	login := readLogin(t, vault.seen("/v1/auth/aws/login")[0])
	login.check(t, "login", "eu-west-1", awsIdentity{"ASIA", "secret", "session"}, w.Now())
	if login.role != "web" || login.header["X-Vault-AWS-IAM-Server-ID"] != "vault.example.com" || !strings.Contains(login.header["Authorization"], "x-vault-aws-iam-server-id") {
		t.Errorf("%+v", login)
	}
	if strings.Join(regions, " ") != "eu-west-1 eu-west-1" {
		t.Errorf("regions %q: the issuer's is meant, whatever the environment says", regions)
	}
}

func TestAmbientAWS(t *testing.T) {
	vault, aws := newStandIn(t, plain), newAmazon(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("pod\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	temporary := awsIdentity{"ASIA", "secret", "session"}
	for _, c := range []struct {
		name   string
		env    map[string]string
		id     awsIdentity
		region string
	}{
		{"keys", map[string]string{"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-north-1"}, awsIdentity{"AKIA", "s", ""}, "eu-north-1"},
		{"web identity", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ROLE_ARN": "arn"}, temporary, "eu-west-1"},
		{"container", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": aws.URL + "/agent", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file}, temporary, "eu-west-1"},
		{"instance", nil, temporary, "eu-west-1"},
	} {
		w := newWorld(t, vault)
		w.AWS.STS, w.AWS.Metadata = func(string) string { return aws.URL + "/sts" }, aws.URL
		w.AWS.Getenv = func(name string) string { return c.env[name] }
		vault.with(func() { vault.calls = nil })
		_, f := w.probe(w.issuer("", func(v *certmanagerv1.VaultIssuer) {
			v.Auth.AWS = &certmanagerv1.VaultAWSAuth{Role: "web", Region: "eu-west-1", Path: "/v1/auth/cloud"}
		}))
		if f != nil {
			t.Errorf("%s: %v", c.name, f)
			continue
		}
		readLogin(t, vault.seen("/v1/auth/cloud/login")[0]).check(t, c.name, c.region, c.id, w.Now())
	}
	if form := aws.forms[0]; form.Get("WebIdentityToken") != "pod" || form.Get("RoleArn") != "arn" {
		t.Errorf("web identity: %v", form)
	}
}

func TestAWSFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		text  string
		class fault.Class
		says  string
	}{
		{"refused", 403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>", fault.ClassCredential, "answered 403: AccessDenied: Not authorized"},
		{"broken", 500, "oops", fault.ClassUnavailable, "answered 500: Internal Server Error"},
		{"empty", 200, "<x/>", fault.ClassUnavailable, "STS gave no credentials"},
		{"no XML", 200, strings.Repeat("7", 600), fault.ClassUnavailable, "assume the AWS role arn: "},
		{"long", 403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>" + strings.Repeat("7", 600) + "</Message></Error></ErrorResponse>", fault.ClassCredential, "answered 403: AccessDenied: 777"},
		{"another server", 403, strings.Repeat("7", 600), fault.ClassCredential, "answered 403: Forbidden"},
	} {
		aws := newAmazon(t)
		aws.code, aws.text = c.code, c.text
		w := newWorld(t, newStandIn(t, plain))
		w.AWS.STS = func(string) string { return aws.URL + "/sts" }
		_, f := w.probe(w.issuer("team", func(v *certmanagerv1.VaultIssuer) {
			v.Auth.AWS = &certmanagerv1.VaultAWSAuth{Role: "web", IAMRoleARN: "arn", ServiceAccountRef: &acmev1.ServiceAccountRef{Name: "sa"}}
		}))
		if f == nil || f.Class != c.class || !strings.Contains(f.Error(), c.says) {
			t.Errorf("%s: %+v", c.name, f)
		}
		if n := strings.Count(f.Error(), "7"); n > 512 || c.name == "another server" && n > 20 {
			t.Errorf("%s: the status quotes %d bytes of the answer: %v", c.name, n, f)
		}
	}
}

func TestSTSAddress(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "https://sts.amazonaws.com/", "eu-west-1": "https://sts.eu-west-1.amazonaws.com/", "cn-north-1": "https://sts.cn-north-1.amazonaws.com.cn/",
	} {
		if got := (&AWSConfig{}).stsAddress(region); got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
	}
}
