package standin

import (
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Names of accounts and keys, for those who sign.
const (
	AkamaiHost        = "akab-standin.luna.akamaiapis.net"
	AkamaiClientToken = "akab-client-token"
	AkamaiAccessToken = "akab-access-token"
	AWSKey            = "AKIASTANDIN"
	AWSRole           = "arn:aws:iam::123456789012:role/dns"
	AWSWebToken       = "web-identity-token"
	AWSZone           = "Z0STANDIN"
	awsRoleKey        = "ASIAROLE"
	GoogleAccount     = "dns@project.iam.gserviceaccount.com"
	GoogleProject     = "project"
)

// AWSSecret is the secret access key of AWSKey.
func (w *World) AWSSecret() string { return "aws-" + w.Token }

var awsAuthorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]+)$`)

// awsSigned returns the access key id that has signed a request, or "" for a bad signature:
// it signs it again and compares.
func (w *World) awsSigned(r *http.Request, body []byte, service string) string {
	m := awsAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if m == nil || err != nil || m[4] != service || time.Since(at).Abs() > 5*time.Minute {
		return ""
	}
	credential := aws.Credentials{AccessKeyID: m[1], SecretAccessKey: w.AWSSecret()}
	if m[1] == awsRoleKey {
		credential.SecretAccessKey, credential.SessionToken = "role-"+w.Token, "session-"+w.Token
	}
	again, err := http.NewRequestWithContext(context.Background(), r.Method, "https://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return ""
	}
	for name := range strings.SplitSeq(m[5], ";") {
		if name != "host" && name != "content-length" {
			again.Header.Set(name, r.Header.Get(name))
		}
	}
	sum := sha256.Sum256(body)
	if v4.NewSigner().SignHTTP(context.Background(), credential, again, hex.EncodeToString(sum[:]), service, m[3], at) != nil ||
		again.Header.Get("Authorization") != r.Header.Get("Authorization") {
		return ""
	}
	return m[1]
}

func awsFail(rw http.ResponseWriter, status int, code string, detail string) {
	rw.WriteHeader(status)
	_, _ = fmt.Fprintf(rw, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>req-%d</RequestId></ErrorResponse>`,
		code, detail, time.Now().UnixNano())
}

// sts: AssumeRole and AssumeRoleWithWebIdentity.
func (w *World) sts(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.ParseForm() != nil || r.Form.Get("RoleArn") != AWSRole || r.Form.Get("RoleSessionName") != "cert-manager" {
		awsFail(rw, http.StatusForbidden, "AccessDenied", "not authorized to assume this role")
		return
	}
	action := r.Form.Get("Action")
	allowed := action == "AssumeRole" && w.awsSigned(r, body, "sts") == AWSKey ||
		action == "AssumeRoleWithWebIdentity" && r.Form.Get("WebIdentityToken") == AWSWebToken && r.Header.Get("Authorization") == ""
	if !allowed {
		awsFail(rw, http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid.")
		return
	}
	_, _ = fmt.Fprintf(rw, `<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials>`+
		`<AccessKeyId>%[2]s</AccessKeyId><SecretAccessKey>role-%[3]s</SecretAccessKey><SessionToken>session-%[3]s</SessionToken><Expiration>%[4]s</Expiration>`+
		`</Credentials><AssumedRoleUser><Arn>%[5]s</Arn><AssumedRoleId>x:y</AssumedRoleId></AssumedRoleUser></%[1]sResult></%[1]sResponse>`,
		action, awsRoleKey, w.Token, time.Now().Add(time.Hour).UTC().Format(time.RFC3339), AWSRole)
}

// route53: version 2013-04-01. Each value of a multivalue set is a record of its own.
func (w *World) route53(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if w.awsSigned(r, body, "route53") == "" {
		awsFail(rw, http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.URL.Path == "/2013-04-01/hostedzonesbyname":
		_, _ = fmt.Fprintf(rw, `<ListHostedZonesByNameResponse><HostedZones>`+
			`<HostedZone><Id>/hostedzone/ZPRIVATE</Id><Name>%[1]s.</Name><CallerReference>x</CallerReference><Config><PrivateZone>true</PrivateZone></Config></HostedZone>`+
			`<HostedZone><Id>/hostedzone/%[2]s</Id><Name>%[1]s.</Name><CallerReference>y</CallerReference><Config><PrivateZone>false</PrivateZone></Config></HostedZone>`+
			`</HostedZones><IsTruncated>false</IsTruncated><MaxItems>100</MaxItems></ListHostedZonesByNameResponse>`, Zone, AWSZone)
	case strings.TrimSuffix(r.URL.Path, "/") == "/2013-04-01/hostedzone/"+AWSZone+"/rrset":
		w.route53Change(rw, body)
	default:
		awsFail(rw, http.StatusNotFound, "NoSuchHostedZone", "No hosted zone found")
	}
}

func (w *World) route53Change(rw http.ResponseWriter, body []byte) {
	var in struct {
		Changes []struct {
			Action            string
			ResourceRecordSet struct {
				Name, Type, SetIdentifier string
				TTL                       int
				MultiValueAnswer          bool
				Values                    []string `xml:"ResourceRecords>ResourceRecord>Value"`
			}
		} `xml:"ChangeBatch>Changes>Change"`
	}
	if xml.Unmarshal(body, &in) != nil || len(in.Changes) != 1 {
		awsFail(rw, http.StatusBadRequest, "MalformedInput", "Unexpected input")
		return
	}
	change, set := in.Changes[0], in.Changes[0].ResourceRecordSet
	if set.Type != "TXT" || set.TTL != 10 || !set.MultiValueAnswer || len(set.Values) != 1 || set.SetIdentifier != set.Values[0] {
		awsFail(rw, http.StatusBadRequest, "InvalidInput", "not a multivalue set")
		return
	}
	value := unquote(set.Values[0])
	i := slices.Index(w.sets[set.Name], value)
	switch {
	case change.Action == "UPSERT" && i < 0:
		w.set(set.Name, append(w.sets[set.Name], value))
	case change.Action == "DELETE" && i < 0:
		rw.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprint(rw, `<InvalidChangeBatch><Messages><Message>Tried to delete resource record set but it was not found</Message></Messages></InvalidChangeBatch>`)
		return
	case change.Action == "DELETE":
		w.set(set.Name, slices.Delete(slices.Clone(w.sets[set.Name]), i, i+1))
	}
	_, _ = fmt.Fprint(rw, `<ChangeResourceRecordSetsResponse><ChangeInfo><Id>/change/C1</Id><Status>PENDING</Status><SubmittedAt>2026-01-01T00:00:00Z</SubmittedAt></ChangeInfo></ChangeResourceRecordSetsResponse>`)
}

var edgeGrid = regexp.MustCompile(`^(EG1-HMAC-SHA256 client_token=([^;]+);access_token=([^;]+);timestamp=([^;]+);nonce=[^;]+;)signature=(.+)$`)

// edgeGridSigned tells whether a request is signed as EdgeGrid says.
func (w *World) edgeGridSigned(r *http.Request, body []byte) bool {
	m := edgeGrid.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return false
	}
	mac := func(key, data string) string {
		h := hmac.New(sha256.New, []byte(key))
		h.Write([]byte(data))
		return base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	hash := ""
	if sum := sha256.Sum256(body); r.Method == http.MethodPost && len(body) > 0 {
		hash = base64.StdEncoding.EncodeToString(sum[:])
	}
	data := strings.Join([]string{r.Method, "https", r.Host, r.URL.RequestURI(), "", hash, m[1]}, "\t")
	return mac(mac("akamai-"+w.Token, m[4]), data) == m[5] && m[2] == AkamaiClientToken && m[3] == AkamaiAccessToken
}

// akamai: Edge DNS, authenticated by EdgeGrid.
func (w *World) akamai(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fail := func(status int, title string) {
		say(rw, status, map[string]any{"type": "problem", "title": title, "detail": title, "status": status})
	}
	if !w.edgeGridSigned(r, body) {
		fail(http.StatusUnauthorized, "The signature does not match")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, ok := strings.CutPrefix(r.URL.Path, "/config-dns/v2/zones/"+Zone+"/names/")
	name, rest, _ := strings.Cut(name, "/")
	if !ok || rest != "types/TXT" {
		fail(http.StatusNotFound, "Not Found")
		return
	}
	name = strings.TrimSuffix(name, ".") + "."
	values, exists := w.sets[name]
	var in struct {
		TTL   int
		Rdata []string
	}
	switch r.Method {
	case http.MethodGet:
		if !exists {
			fail(http.StatusNotFound, "Not Found")
			return
		}
		rdata := []string{}
		for _, v := range values {
			rdata = append(rdata, `"`+v+`"`)
		}
		say(rw, http.StatusOK, map[string]any{"name": strings.TrimSuffix(name, "."), "type": "TXT", "ttl": 300, "rdata": rdata})
	case http.MethodPost, http.MethodPut:
		if json.Unmarshal(body, &in) != nil || in.TTL != 300 || exists != (r.Method == http.MethodPut) {
			fail(http.StatusConflict, "Conflict")
			return
		}
		next := []string{}
		for _, v := range in.Rdata {
			next = append(next, unquote(v))
		}
		w.set(name, next)
		if r.Method == http.MethodPut {
			say(rw, http.StatusOK, in)
			return
		}
		say(rw, http.StatusCreated, in)
	case http.MethodDelete:
		w.set(name, nil)
		rw.WriteHeader(http.StatusNoContent)
	}
}

// verify tells whether a JWT is signed with RS256 by the key, and returns its claims.
func verify(jwt string, key *rsa.PublicKey) (claims map[string]any) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 || key == nil {
		return nil
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) != nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return nil
	}
	return claims
}
