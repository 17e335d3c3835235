package api_test

import (
	"fmt"
	"strings"
)

// certificateCases are about a Certificate's names, times and Secret.
func certificateCases() []ruleCase {
	const c = "certificate"
	return []ruleCase{
		{"as it is", c, nil, ""},
		{"no spec", c, changes{"spec": nil}, "spec: is missing: say which certificate"},
		{"no secretName", c, changes{"spec.secretName": nil}, "spec.secretName: Required value"},
		{"no issuerRef", c, changes{"spec.issuerRef": nil}, "spec.issuerRef: Required value"},
		{"secretName in capitals", c, changes{"spec.secretName": "Web"}, "secretName: must be a DNS subdomain"},
		{"empty secretName", c, changes{"spec.secretName": ""}, "secretName: must be a DNS subdomain"},
		{"dotted secretName", c, changes{"spec.secretName": "www.example-1.com"}, ""},
		{"empty issuer", c, changes{"spec.issuerRef.name": ""}, "issuerRef.name: must not be empty"},
		{"unknown kind of ours", c, changes{"spec.issuerRef.kind": "Other"}, "issuerRef.kind: use Issuer or ClusterIssuer"},
		{"external kind", c, changes{"spec.issuerRef.kind": "Other", "spec.issuerRef.group": "example.com"}, ""},
		{"our group", c, changes{"spec.issuerRef.kind": "Other", "spec.issuerRef.group": "cert-manager.io"}, "issuerRef.kind: use Issuer or ClusterIssuer"},
		{"no names", c, changes{"spec.dnsNames": nil}, "at least one of commonName, literalSubject"},
		{"empty names", c, changes{"spec.dnsNames": strs(), "spec.commonName": ""}, "at least one of commonName, literalSubject"},
		{"a common name", c, changes{"spec.dnsNames": nil, "spec.commonName": "web"}, ""},
		{"a URI", c, changes{"spec.dnsNames": nil, "spec.uris": strs("spiffe://a/b")}, ""},
		{"common name of 64 bytes", c, changes{"spec.commonName": strings.Repeat("x", 64)}, ""},
		{"common name of 65 bytes", c, changes{"spec.commonName": strings.Repeat("x", 63) + "é"}, "commonName: must have 64 bytes at most"},
		{"literal subject", c, changes{"spec.literalSubject": "CN=web,O=Example"}, ""},
		{"literal subject of all keys", c, changes{"spec.literalSubject": ` cn = a\,b=c+l=L;ST=S,O="q",OU=,C=IE,STREET=1\2c 2,DC=x,UID=u,SERIALNUMBER=1,POSTALCODE=2, 1.2.3.4=#0401`}, ""},
		{"literal subject with an unknown key", c, changes{"spec.literalSubject": "CN=web,TEST= b\\,d ,O=Example"}, `spec.literalSubject: Invalid value: "CN=web,TEST= b\\,d ,O=Example": Literal subject contains unrecognized key with value [b\,d]`},
		{"literal subject with an empty key", c, changes{"spec.literalSubject": "CN=web,=x"}, "Literal subject contains unrecognized key with value [x]"},
		{"literal subject with nothing between commas", c, changes{"spec.literalSubject": "CN=web,,O=x"}, "Literal subject contains unrecognized key with value [x]"},
		{"literal subject without a key", c, changes{"spec.literalSubject": "web"}, "literalSubject: must be pairs of a key and a value"},
		{"literal subject with a name as a key", c, changes{"spec.literalSubject": "organization=x"}, "Literal subject contains unrecognized key with value [x]"},
		{"literal subject and common name", c, changes{"spec.literalSubject": "CN=web", "spec.commonName": "web"}, "literalSubject: cannot be combined"},
		{"literal subject and subject", c, changes{"spec.literalSubject": "CN=web", "spec.subject.countries": strs("IE")}, "literalSubject: cannot be combined"},
		{"addresses", c, changes{"spec.ipAddresses": strs("192.0.2.1", "::1", "::ffff:192.0.2.1")}, ""},
		{"no address", c, changes{"spec.ipAddresses": strs("192.0.2.1", "192.0.2")}, "ipAddresses: every entry must be"},
		{"address with port", c, changes{"spec.ipAddresses": strs("192.0.2.1:80")}, "ipAddresses: every entry must be"},
		{"e-mail", c, changes{"spec.emailAddresses": strs("web@example.com", "a.b+c@x")}, ""},
		{"e-mail with display name", c, changes{"spec.emailAddresses": strs("Web <web@example.com>")}, "emailAddresses: every entry must be"},
		{"no e-mail", c, changes{"spec.emailAddresses": strs("example.com")}, "emailAddresses: every entry must be"},
		{"other name", c, changes{"spec.otherNames": []any{map[string]any{"oid": "1.2.3", "utf8Value": "x"}}}, ""},
		{"bad oid", c, changes{"spec.otherNames": []any{map[string]any{"oid": "BAD_OID", "utf8Value": "x"}}}, "invalid oid syntax"},
		{"oid path", c, changes{"spec.otherNames": []any{map[string]any{"oid": "BAD_OID", "utf8Value": "x"}}}, "spec.otherNames[0].oid: Invalid value"},
		{"no oid", c, changes{"spec.otherNames": []any{map[string]any{"utf8Value": "x"}}}, "must be set to an object identifier"},
		{"no utf8Value", c, changes{"spec.otherNames": []any{map[string]any{"oid": "1.2.3"}}}, "must be set to a valid non-empty UTF8 string"},
		{"utf8Value text", c, changes{"spec.otherNames": []any{map[string]any{"oid": "1.2.3", "utf8Value": ""}}}, "spec.otherNames[0].utf8Value: Required value: must be set to a valid non-empty UTF8 string"},
		{"duration of 1h", c, changes{"spec.duration": "1h"}, ""},
		{"duration in parts", c, changes{"spec.duration": "1h30m0s", "spec.renewBefore": "1h29m"}, ""},
		{"duration below 1h", c, changes{"spec.duration": "59m"}, "duration: must be at least 1h"},
		{"duration in days", c, changes{"spec.duration": "90d"}, "duration: must be at least 1h"},
		{"renewBefore below 5m", c, changes{"spec.renewBefore": "4m59s"}, "renewBefore: must be at least 5m"},
		{"renewBefore of the default duration", c, changes{"spec.renewBefore": "2160h"}, "renewBefore: must be less than duration"},
		{"renewBefore of the duration", c, changes{"spec.duration": "2h", "spec.renewBefore": "120m"}, "renewBefore: must be less than duration"},
		{"two renewBefore", c, changes{"spec.renewBefore": "1h", "spec.renewBeforePercentage": int64(10)}, "renewBefore and renewBeforePercentage exclude each other"},
		{"percentage", c, changes{"spec.renewBeforePercentage": int64(33)}, ""},
		{"percentage 0", c, changes{"spec.renewBeforePercentage": int64(0)}, "renewBeforePercentage: must be between 1 and 99"},
		{"percentage 100", c, changes{"spec.renewBeforePercentage": int64(100)}, "renewBeforePercentage: must be between 1 and 99"},
		{"history", c, changes{"spec.revisionHistoryLimit": int64(1)}, ""},
		{"no history", c, changes{"spec.revisionHistoryLimit": int64(0)}, "should be greater than or equal to 1"},
		{"unknown usage", c, changes{"spec.usages": strs("flying")}, "Unsupported value"},
		{"unknown field", c, changes{"spec.dnsName": "x"}, "unknown field"},
		{"windows", c, changes{"spec.renewal": renewal("RenewBefore", "0 2 * * 6")}, ""},
		{"daily window", c, changes{"spec.renewal": renewal("RenewBefore", "@daily")}, ""},
		{"windows when disabled", c, changes{"spec.renewal": renewal("Disabled", "@daily")}, "renewal.windows: must be empty"},
		{"bad cron", c, changes{"spec.renewal": renewal("RenewBefore", "0 2 * *")}, "cron: must have five fields"},
		{"cron of all forms", c, changes{"spec.renewal": renewal("RenewBefore", " CRON_TZ=Europe/Dublin 00,*/15,5-59/07 23 ? JAN-dec/2,12 sun-6 ")}, ""},
		{"cron at minute 60", c, changes{"spec.renewal": renewal("RenewBefore", "60 * * * *")}, "cron: must have five fields"},
		{"cron at hour 24", c, changes{"spec.renewal": renewal("RenewBefore", "0 24 * * *")}, "cron: must have five fields"},
		{"cron on day 0", c, changes{"spec.renewal": renewal("RenewBefore", "0 0 0 * *")}, "cron: must have five fields"},
		{"cron in month 13", c, changes{"spec.renewal": renewal("RenewBefore", "0 0 * 13 *")}, "cron: must have five fields"},
		{"cron on weekday 7", c, changes{"spec.renewal": renewal("RenewBefore", "0 0 * * 7")}, "cron: must have five fields"},
		{"cron on no weekday", c, changes{"spec.renewal": renewal("RenewBefore", "0 0 * * someday")}, "cron: must have five fields"},
		{"cron every no minutes", c, changes{"spec.renewal": renewal("RenewBefore", "*/0 * * * *")}, "cron: must have five fields"},
		{"unknown word", c, changes{"spec.renewal": renewal("RenewBefore", "@sometimes")}, "cron: must have five fields"},
		{"a period without begin", c, changes{"spec.renewal": renewal("RenewBefore", "@every 1h")}, "cron: must have five fields"},
		{"time zone", c, changes{"spec.renewal": renewal("RenewBefore", "@daily", "America/Argentina/Rio_Gallegos")}, ""},
		{"time zone by offset", c, changes{"spec.renewal": renewal("RenewBefore", "@daily", "Etc/GMT+5")}, ""},
		{"time zone of wherever we run", c, changes{"spec.renewal": renewal("RenewBefore", "@daily", "Local")}, "timezone: must be a time zone of the IANA database"},
		{"no time zone", c, changes{"spec.renewal": renewal("RenewBefore", "@daily", "Europe/Not a zone")}, "timezone: must be a time zone of the IANA database"},
		{"no policy", c, changes{"spec.renewal": map[string]any{}}, "spec.renewal.policy: Required value"},
		{"unknown policy", c, changes{"spec.renewal": renewal("Always", "@daily")}, "Unsupported value"},
	}
}

// leadCases have each renewBefore and the percentage that comes to the same: both are taken, or both refused.
func leadCases() (all []ruleCase) {
	for _, l := range []struct {
		duration, before string
		percent          int64
		refused          bool
	}{
		{"1h", "3m", 5, true}, {"1h", "4m48s", 8, true}, {"1h", "5m24s", 9, false}, {"1h", "57m", 95, false}, {"1h", "59m24s", 99, false},
		{"8h", "4m48s", 1, true}, {"8h20m", "5m", 1, false}, {"8h19m59s", "4m59.99s", 1, true}, {"", "21h36m", 1, false}, {"", "2138h24m", 99, false},
	} {
		for field, value := range map[string]any{"renewBefore": l.before, "renewBeforePercentage": l.percent} {
			set, want := changes{"spec." + field: value}, ""
			if l.duration != "" {
				set["spec.duration"] = l.duration
			}
			if l.refused {
				want = field + ": "
			}
			all = append(all, ruleCase{fmt.Sprintf("%s %v of %q", field, value, l.duration), "certificate", set, want})
		}
	}
	return all
}

func renewal(policy, cron string, zone ...string) map[string]any {
	window := map[string]any{"cron": cron, "windowDuration": "2h"}
	for _, z := range zone {
		window["timezone"] = z
	}
	return map[string]any{"policy": policy, "windows": []any{window}}
}

// certificateKeyCases are about a Certificate's key and the forms in which it is kept.
func certificateKeyCases() []ruleCase {
	const c = "certificate"
	format := func(name string) any { return map[string]any{"type": name} }
	return []ruleCase{
		{"template", c, changes{"spec.secretTemplate.annotations": map[string]any{"cert-manager.io/allow-direct-injection": "true"}}, ""},
		{"reserved annotation", c, changes{"spec.secretTemplate.annotations": map[string]any{"cert-manager.io/x": "y"}}, "secretTemplate.annotations: keys may not start with cert-manager.io/"},
		{"bad annotation", c, changes{"spec.secretTemplate.annotations": map[string]any{"a b": "y"}}, "secretTemplate.annotations: every key must be"},
		{"bad label", c, changes{"spec.secretTemplate.labels": map[string]any{"a b": "y"}}, "secretTemplate.labels: every key must be"},
		{"long label", c, changes{"spec.secretTemplate.labels": map[string]any{"a": strings.Repeat("x", 64)}}, "secretTemplate.labels: every value must have"},
		{"jks without password", c, changes{"spec.keystores.jks.create": true}, "keystores.jks: set exactly one"},
		{"jks with two passwords", c, changes{"spec.keystores.jks": map[string]any{"create": true, "password": "x", "passwordSecretRef": secretRef("a", "b")}}, "keystores.jks: set exactly one"},
		{"jks", c, changes{"spec.keystores.jks": map[string]any{"create": true, "password": "", "passwordSecretRef": secretRef("a", "b")}}, ""},
		{"jks by a Go client", c, changes{"spec.keystores.jks": map[string]any{"create": true, "password": "x", "passwordSecretRef": map[string]any{"name": ""}}}, ""},
		{"pkcs12 without password", c, changes{"spec.keystores.pkcs12.create": true}, "keystores.pkcs12: set exactly one"},
		{"unknown profile", c, changes{"spec.keystores.pkcs12": map[string]any{"create": true, "password": "x", "profile": "Modern"}}, "Unsupported value"},
		{"RSA 2048", c, changes{"spec.privateKey.size": int64(2048)}, ""},
		{"RSA 0", c, changes{"spec.privateKey.algorithm": "RSA", "spec.privateKey.size": int64(0)}, ""},
		{"RSA 1024", c, changes{"spec.privateKey.size": int64(1024)}, "privateKey.size: for RSA use 2048 to 8192"},
		{"RSA 8193", c, changes{"spec.privateKey.algorithm": "RSA", "spec.privateKey.size": int64(8193)}, "privateKey.size: for RSA use 2048 to 8192"},
		{"ECDSA 521", c, changes{"spec.privateKey.algorithm": "ECDSA", "spec.privateKey.size": int64(521)}, ""},
		{"ECDSA 512", c, changes{"spec.privateKey.algorithm": "ECDSA", "spec.privateKey.size": int64(512)}, "privateKey.size: for ECDSA use 256, 384 or 521"},
		{"Ed25519 of any size", c, changes{"spec.privateKey.algorithm": "Ed25519", "spec.privateKey.size": int64(1)}, ""},
		{"ML-DSA", c, changes{"spec.privateKey": map[string]any{"algorithm": "MLDSA44", "encoding": "PKCS8", "size": int64(0)}, "spec.usages": strs("digital signature", "client auth")}, ""},
		{"ML-DSA with a size", c, changes{"spec.privateKey.algorithm": "MLDSA65", "spec.privateKey.size": int64(65)}, "privateKey.size: an ML-DSA key has one size"},
		{"ML-DSA as PKCS1", c, changes{"spec.privateKey.algorithm": "MLDSA87", "spec.privateKey.encoding": "PKCS1"}, "privateKey.encoding: an ML-DSA key is always PKCS8"},
		{"ML-DSA for encipherment", c, changes{"spec.privateKey.algorithm": "MLDSA65", "spec.usages": strs("digital signature", "key encipherment")}, "usages: an ML-DSA key only signs"},
		{"signature by ML-DSA", c, changes{"spec.signatureAlgorithm": "PureMLDSA87", "spec.privateKey.algorithm": "MLDSA87"}, ""},
		{"signature by another ML-DSA", c, changes{"spec.signatureAlgorithm": "PureMLDSA87", "spec.privateKey.algorithm": "MLDSA65"}, "signatureAlgorithm: must belong to privateKey.algorithm"},
		{"unknown algorithm", c, changes{"spec.privateKey.algorithm": "DSA"}, "Unsupported value"},
		{"signature by the default key", c, changes{"spec.signatureAlgorithm": "SHA512WithRSA"}, ""},
		{"signature by ECDSA", c, changes{"spec.signatureAlgorithm": "ECDSAWithSHA256", "spec.privateKey.algorithm": "ECDSA"}, ""},
		{"signature by Ed25519", c, changes{"spec.signatureAlgorithm": "PureEd25519", "spec.privateKey.algorithm": "Ed25519"}, ""},
		{"signature by another key", c, changes{"spec.signatureAlgorithm": "ECDSAWithSHA256"}, "signatureAlgorithm: must belong to privateKey.algorithm"},
		{"formats", c, changes{"spec.additionalOutputFormats": []any{format("DER"), format("CombinedPEM")}}, ""},
		{"format twice", c, changes{"spec.additionalOutputFormats": []any{format("DER"), format("DER")}}, "additionalOutputFormats: every type may be listed once"},
		{"constraints", c, changes{"spec.isCA": true, "spec.nameConstraints.permitted.ipRanges": strs("10.0.0.0/8", "2001:db8::/32")}, ""},
		{"constraints of a leaf", c, changes{"spec.nameConstraints.permitted.dnsDomains": strs("example.com")}, "nameConstraints: only a certificate authority has them"},
		{"empty constraints", c, changes{"spec.isCA": true, "spec.nameConstraints.critical": true}, "nameConstraints: set permitted or excluded"},
		{"bad range", c, changes{"spec.isCA": true, "spec.nameConstraints.excluded.ipRanges": strs("10.0.0.0")}, "ipRanges: every entry must be"},
	}
}

// requestCases are about making a CertificateRequest.
func requestCases() []ruleCase {
	const r = "request"
	return []ruleCase{
		{"as it is", r, nil, ""},
		{"no spec", r, changes{"spec": nil}, "is missing: say what to sign"},
		{"no request", r, changes{"spec.request": nil}, "spec.request: Required value"},
		{"empty request", r, changes{"spec.request": ""}, "must be of type byte"},
		{"not PEM", r, changes{"spec.request": "aGVsbG8="}, "request: must be a certificate signing request in PEM form"},
		{
			"cmctl check api", r, changes{"spec.request": "aGVsbG8=", "spec.issuerRef.name": "cmapichecker"},
			`admission webhook "webhook.cert-manager.io" denied the request: spec.request: must be a certificate signing request in PEM form`,
		},
		{"not base64", r, changes{"spec.request": "%"}, "spec.request"},
		{"unknown kind of ours", r, changes{"spec.issuerRef.kind": "Other"}, "issuerRef.kind: use Issuer or ClusterIssuer"},
	}
}
