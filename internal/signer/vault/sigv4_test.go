package vault

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// The examples of AWS's test suite for Signature Version 4 and of its General
// Reference, as far as they are requests of the kind that is made here.
func TestSignatureOfExamples(t *testing.T) {
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	id := awsIdentity{accessKey: "AKIDEXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		name            string
		method          string
		header          map[string]string
		body            string
		session         string
		signed, hexText string
	}{
		{"get-vanilla", "GET", nil, "", "", "host;x-amz-date",
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"post-vanilla", "POST", nil, "", "", "host;x-amz-date",
			"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"post-x-www-form-urlencoded", "POST", map[string]string{"Content-Type": form}, "Param1=value1", "", "content-type;host;x-amz-date",
			"ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"get-header-value-trim", "GET", map[string]string{"My-Header1": " value1", "My-Header2": ` "a   b   c"`}, "", "", "host;my-header1;my-header2;x-amz-date",
			"acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		{"post-sts-header-before", "POST", nil, "", stsToken, "host;x-amz-date;x-amz-security-token",
			"85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
	} {
		r := &awsRequest{method: c.method, host: "example.amazonaws.com", body: c.body, region: "us-east-1", service: "service", header: map[string]string{}}
		maps.Copy(r.header, c.header)
		with := id
		with.sessionToken = c.session
		r.sign(with, at)
		want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" + c.signed + ", Signature=" + c.hexText
		if got := r.header["Authorization"]; got != want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, want)
		}
		if got := r.header["X-Amz-Date"]; got != "20150830T123600Z" {
			t.Errorf("%s: date %s", c.name, got)
		}
	}
}

var stsToken = strings.Join([]string{
	"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/",
	"qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+",
	"scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==",
}, "")
