package api_test

import (
	"fmt"
	"strings"
)

// notPEM is base64 of a text that is no certificate.
const notPEM = "aGVsbG8="

// somePEM is base64 of what looks like a certificate.
const somePEM = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

// issuerCases are about issuers of every type but ACME.
func issuerCases() []ruleCase {
	token := changes{"spec.vault.auth.tokenSecretRef": map[string]any{"name": "token"}}
	vault := func(path string, value any) changes {
		return changes{"spec.vault." + path: value}
	}
	return []ruleCase{
		{"no type", "empty", nil, "exactly one of acme, ca, vault, selfSigned and venafi"},
		{"two types", "ca", changes{"spec.selfSigned": map[string]any{}}, "exactly one of acme, ca, vault, selfSigned and venafi"},
		{"two types in the cluster", "selfsigned", changes{"spec.ca.secretName": "ca"}, "exactly one of acme, ca, vault, selfSigned and venafi"},
		{"as it is", "selfsigned", nil, ""},
		{"as it is", "ca", nil, ""},
		{"empty Secret", "ca", changes{"spec.ca.secretName": ""}, "ca.secretName: must not be empty"},
		{"empty OCSP server", "ca", changes{"spec.ca.ocspServers": strs("")}, "should be at least 1 chars long"},
		{"empty issuer address", "ca", changes{"spec.ca.issuingCertificateURLs": strs("")}, "should be at least 1 chars long"},

		{"token", "vault", token, ""},
		{"several methods", "vault", changes{"spec.vault.auth": map[string]any{
			"tokenSecretRef": map[string]any{"name": "t"}, "clientCertificate": map[string]any{},
		}}, ""},
		{"no server", "vault", vault("server", ""), "vault.server: must not be empty"},
		{"no path", "vault", vault("path", ""), "vault.path: must not be empty"},
		{"path upwards", "vault", vault("path", "pki/../sys"), "vault.path: must not contain"},
		{"path with dots", "vault", vault("path", "pki/a..b"), ""},
		{"two bundles", "vault", changes{"spec.vault.caBundle": somePEM, "spec.vault.caBundleSecretRef.name": "ca-bundle"},
			"specified caBundle and caBundleSecretRef cannot be used together"},
		{"two bundles, the other", "vault", changes{"spec.vault.caBundle": somePEM, "spec.vault.caBundleSecretRef.name": "ca-bundle"},
			"specified caBundleSecretRef and caBundle cannot be used together"},
		{"bad bundle", "vault", vault("caBundle", notPEM), "vault.caBundle: must hold certificates"},
		{"client certificate without key", "vault", vault("clientCertSecretRef.name", "x"), "clientCertSecretRef and clientKeySecretRef belong together"},
		{"empty token Secret", "vault", vault("auth.tokenSecretRef.name", ""), "tokenSecretRef.name: must not be empty"},
		{"empty role id", "vault", vault("auth.appRole", map[string]any{"path": "approle", "roleId": "", "secretRef": secretRef("a", "b")}), "appRole: path and roleId must not be empty"},
		{"app role upwards", "vault", vault("auth.appRole", map[string]any{"path": "../x", "roleId": "r", "secretRef": secretRef("a", "b")}), "appRole.path: must not contain"},
		{"app role without key", "vault", vault("auth.appRole", map[string]any{"path": "approle", "roleId": "r", "secretRef": map[string]any{"name": "a"}}), "appRole.secretRef: set name and key"},
		{"client certificate upwards", "vault", vault("auth.clientCertificate.mountPath", "/v1/.."), "clientCertificate.mountPath: must not contain"},
		{"kubernetes upwards", "vault", vault("auth.kubernetes", map[string]any{"role": "r", "mountPath": "..", "secretRef": secretRef("a", "b")}), "kubernetes.mountPath: must not contain"},
		{"kubernetes without role", "vault", vault("auth.kubernetes", map[string]any{"role": "", "secretRef": secretRef("a", "b")}), "kubernetes.role: must not be empty"},
		{"kubernetes without token", "vault", vault("auth.kubernetes", map[string]any{"role": "r"}), "kubernetes: set exactly one of secretRef and serviceAccountRef"},
		{"kubernetes with two", "vault", vault("auth.kubernetes", map[string]any{"role": "r", "secretRef": secretRef("a", "b"), "serviceAccountRef": map[string]any{"name": "s"}}), "kubernetes: set exactly one of secretRef and serviceAccountRef"},
		{"kubernetes by a Go client", "vault", vault("auth.kubernetes", map[string]any{"role": "r", "secretRef": map[string]any{"name": ""}, "serviceAccountRef": map[string]any{"name": "s"}}), ""},
		{"empty service account", "vault", vault("auth.kubernetes", map[string]any{"role": "r", "serviceAccountRef": map[string]any{"name": ""}}), "serviceAccountRef.name: must not be empty"},
		{"aws upwards", "vault", vault("auth.aws", map[string]any{"role": "r", "mountPath": "a/.."}), "aws.mountPath: must not contain"},
		{"aws without role", "vault", vault("auth.aws", map[string]any{"role": ""}), "aws.role: must not be empty"},

		{"no server", "venafi", nil, "exactly one of tpp, cloud and ngts"},
		{"two servers", "venafi", changes{
			"spec.venafi.cloud.apiTokenSecretRef.name": "a",
			"spec.venafi.ngts":                         map[string]any{"tsgID": "1", "credentialsRef": map[string]any{"name": "c"}},
		}, "exactly one of tpp, cloud and ngts"},
		{"cloud", "venafi", changes{"spec.venafi.cloud.apiTokenSecretRef.name": "a"}, ""},
		{"no zone", "venafi", changes{"spec.venafi.zone": "", "spec.venafi.cloud.apiTokenSecretRef.name": "a"}, "venafi.zone: must not be empty"},
		{"cloud without Secret", "venafi", changes{"spec.venafi.cloud.apiTokenSecretRef.name": ""}, "apiTokenSecretRef.name: must not be empty"},
		{"tpp without address", "venafi", changes{"spec.venafi.tpp": map[string]any{"url": "", "credentialsRef": map[string]any{"name": "c"}}}, "tpp: url and credentialsRef.name must not be empty"},
		{"tpp with bad bundle", "venafi", changes{"spec.venafi.tpp": map[string]any{"url": "u", "credentialsRef": map[string]any{"name": "c"}, "caBundle": notPEM}}, "tpp.caBundle: must hold certificates"},
		{"tpp with two bundles", "venafi", changes{"spec.venafi.tpp": map[string]any{"url": "u", "credentialsRef": map[string]any{"name": "c"}, "caBundle": somePEM, "caBundleSecretRef": map[string]any{"name": "b"}}}, "specified caBundle and caBundleSecretRef"},
		{"ngts without tenant", "venafi", changes{"spec.venafi.ngts": map[string]any{"tsgID": "", "credentialsRef": map[string]any{"name": "c"}}}, "ngts: tsgID and credentialsRef.name must not be empty"},
	}
}

// acmeCases are about ACME issuers and their HTTP-01 solvers.
func acmeCases() []ruleCase {
	eab := func(id string, ref map[string]any) changes {
		return changes{"spec.acme.externalAccountBinding": map[string]any{"keyID": id, "keySecretRef": ref}}
	}
	ingress := func(key string, value any) changes {
		return changes{"spec.acme.solvers.0.http01.ingress." + key: value}
	}
	parent := func(p map[string]any) changes {
		return changes{"spec.acme.solvers.0.http01": map[string]any{"gatewayHTTPRoute": map[string]any{"parentRefs": []any{p}}}}
	}
	patience := func(fields ...any) changes {
		solver := map[string]any{"http01": map[string]any{"ingress": map[string]any{}}}
		for i := 0; i < len(fields); i += 2 {
			solver[fmt.Sprint(fields[i])] = fields[i+1]
		}
		return changes{"spec.acme.solvers": []any{solver}}
	}
	return []ruleCase{
		{"no solvers", "acme", nil, ""},
		{"no server", "acme", changes{"spec.acme.server": ""}, "acme.server: must not be empty"},
		{"no account", "acme", changes{"spec.acme.privateKeySecretRef": nil}, "privateKeySecretRef: Required value"},
		{"empty account", "acme", changes{"spec.acme.privateKeySecretRef.name": ""}, "privateKeySecretRef.name: must not be empty"},
		{"bundle", "acme", changes{"spec.acme.caBundle": somePEM, "spec.acme.skipTLSVerify": false}, ""},
		{"bundle not looked at", "acme", changes{"spec.acme.caBundle": somePEM, "spec.acme.skipTLSVerify": true}, "caBundle and skipTLSVerify exclude each other"},
		{"bad bundle", "acme", changes{"spec.acme.caBundle": notPEM}, "acme.caBundle: must hold certificates"},
		{"long preferred chain", "acme", changes{"spec.acme.preferredChain": strings.Repeat("x", 65)}, "may not be more than 64 bytes"},
		{"binding", "acme", eab("kid", secretRef("a", "b")), ""},
		{"binding without id", "acme", eab("", secretRef("a", "b")), "externalAccountBinding.keyID: must not be empty"},
		{"binding without key", "acme", eab("kid", map[string]any{"name": "a"}), "externalAccountBinding.keySecretRef: set name and key"},

		{"as it is", "http01", nil, ""},
		{"neither solver", "http01", changes{"spec.acme.solvers": []any{map[string]any{}}}, "exactly one of http01, dns01, dnsPersist01 and tlsALPN01"},
		{"both solvers", "http01", changes{"spec.acme.solvers": []any{map[string]any{
			"http01": map[string]any{"ingress": map[string]any{}},
			"dns01":  map[string]any{"digitalocean": map[string]any{"tokenSecretRef": secretRef("a", "b")}},
		}}}, "exactly one of http01, dns01, dnsPersist01 and tlsALPN01"},
		{"TLS handshake", "http01", changes{"spec.acme.solvers": []any{map[string]any{"tlsALPN01": map[string]any{}}}}, ""},
		{"TLS handshake and HTTP", "http01", changes{"spec.acme.solvers.0.tlsALPN01": map[string]any{}}, "exactly one of http01, dns01, dnsPersist01 and tlsALPN01"},
		{"no route", "http01", changes{"spec.acme.solvers": []any{map[string]any{"http01": map[string]any{}}}}, "http01: exactly one of ingress and gatewayHTTPRoute"},
		{"two routes", "http01", changes{"spec.acme.solvers.0.http01": map[string]any{
			"ingress": map[string]any{}, "gatewayHTTPRoute": map[string]any{},
		}}, "http01: exactly one of ingress and gatewayHTTPRoute"},
		{"class and name", "http01", changes{"spec.acme.solvers.0.http01.ingress": map[string]any{"class": "nginx", "name": "web"}}, "http01.ingress: at most one of"},
		{"class and no name", "http01", changes{"spec.acme.solvers.0.http01.ingress": map[string]any{"class": "nginx", "name": ""}}, ""},
		{"bad class name", "http01", ingress("ingressClassName", "Nginx!"), "ingressClassName: must be a DNS subdomain"},
		{"load balancer", "http01", ingress("serviceType", "LoadBalancer"), "Unsupported value"},
		{"empty service type", "http01", ingress("serviceType", ""), ""},
		{"parent without name", "http01", parent(map[string]any{"namespace": "edge"}), "name: Required value"},
		{"parent with bad port", "http01", parent(map[string]any{"name": "g", "port": int64(65536)}), "should be less than or equal to 65535"},
		{"no parents", "http01", changes{"spec.acme.solvers.0.http01": map[string]any{"gatewayHTTPRoute": map[string]any{}}}, ""},
		{"wait", "http01", changes{"spec.acme.solvers": []any{map[string]any{"waitInsteadOfSelfCheck": "0s", "http01": map[string]any{"ingress": map[string]any{}}}}}, ""},
		{"negative wait", "http01", changes{"spec.acme.solvers": []any{map[string]any{"waitInsteadOfSelfCheck": "-1s", "http01": map[string]any{"ingress": map[string]any{}}}}}, "waitInsteadOfSelfCheck: must not be negative"},
		{"settle time", "http01", patience("settleTime", "90s"), ""},
		{"no settle time", "http01", patience("settleTime", "0s"), ""},
		{"negative settle time", "http01", patience("settleTime", "-1s"), "settleTime: must not be negative"},
		{"settle time after a wait", "http01", patience("settleTime", "1s", "waitInsteadOfSelfCheck", "1s"), "have no effect without a self check"},
		{"deadline, accept", "http01", patience("selfCheckDeadline", map[string]any{"after": "10m", "then": "Accept"}), ""},
		{"deadline, fail", "http01", patience("selfCheckDeadline", map[string]any{"after": "1s", "then": "Fail"}), ""},
		{"deadline too early", "http01", patience("selfCheckDeadline", map[string]any{"after": "0s", "then": "Fail"}), "selfCheckDeadline.after: must be at least 1s"},
		{"deadline in words", "http01", patience("selfCheckDeadline", map[string]any{"after": "soon", "then": "Fail"}), "selfCheckDeadline.after: must be at least 1s"},
		{"deadline without action", "http01", patience("selfCheckDeadline", map[string]any{"after": "1m"}), "selfCheckDeadline.then: Required value"},
		{"deadline with another action", "http01", patience("selfCheckDeadline", map[string]any{"after": "1m", "then": "Wait"}), "Unsupported value"},
		{"deadline after a wait", "http01", patience("selfCheckDeadline", map[string]any{"after": "1m", "then": "Fail"}, "waitInsteadOfSelfCheck", "1s"), "have no effect without a self check"},
	}
}
