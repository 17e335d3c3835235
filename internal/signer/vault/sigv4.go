package vault

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// awsIdentity is what AWS knows a caller by.
type awsIdentity struct {
	accessKey, secretKey string
	// sessionToken goes with credentials that were given for a while; may be empty.
	sessionToken string
}

// awsRequest is a request to be signed: to the root of a host, without a query.
type awsRequest struct {
	method, host, body string
	// header has the other headers to sign; the signature is added to it.
	header map[string]string
	// region and service are what the signature is good for.
	region, service string
}

const (
	awsAlgorithm = "AWS4-HMAC-SHA256"
	awsTime      = "20060102T150405Z"
)

// sign adds the headers that AWS Signature Version 4 asks for. The specification is
// "Signature Version 4 signing process" in AWS's General Reference.
func (r *awsRequest) sign(id awsIdentity, now time.Time) {
	now = now.UTC()
	r.header["Host"] = r.host
	r.header["X-Amz-Date"] = now.Format(awsTime)
	if id.sessionToken != "" {
		r.header["X-Amz-Security-Token"] = id.sessionToken
	}
	canonical, signed := r.canonical()
	scope := strings.Join([]string{now.Format("20060102"), r.region, r.service, "aws4_request"}, "/")
	toSign := strings.Join([]string{awsAlgorithm, now.Format(awsTime), scope, hash(canonical)}, "\n")
	key := []byte("AWS4" + id.secretKey)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	r.header["Authorization"] = fmt.Sprintf("%s Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		awsAlgorithm, id.accessKey, scope, signed, hex.EncodeToString(mac(key, toSign)))
}

// canonical returns the request in the form that is hashed, and the names of its headers.
func (r *awsRequest) canonical() (request, signed string) {
	lower := make(map[string]string, len(r.header))
	for name, value := range r.header {
		lower[strings.ToLower(name)] = strings.Join(strings.Fields(value), " ")
	}
	names := slices.Sorted(maps.Keys(lower))
	var lines strings.Builder
	for _, name := range names {
		lines.WriteString(name + ":" + lower[name] + "\n")
	}
	signed = strings.Join(names, ";")
	return strings.Join([]string{r.method, "/", "", lines.String(), signed, hash(r.body)}, "\n"), signed
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}
