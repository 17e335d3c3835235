package api_test

import "maps"

// dnsCases are about DNS-01 solvers.
func dnsCases() []ruleCase {
	dns := func(provider string, value map[string]any) changes {
		return changes{"spec.acme.solvers.0.dns01." + provider: value}
	}
	key := secretRef("a", "b")
	noKey := map[string]any{"name": "a"}
	const d = "dns01"
	persist := func(field string, value any) changes {
		return changes{"spec.acme.solvers": []any{map[string]any{"dnsPersist01": map[string]any{field: value}}}}
	}
	cases := []ruleCase{
		{"no provider", d, nil, "dns01: exactly one provider must be set"},
		{"two providers", d, changes{
			"spec.acme.solvers.0.dns01.digitalocean.tokenSecretRef": key,
			"spec.acme.solvers.0.dns01.webhook":                     map[string]any{"groupName": "g", "solverName": "s"},
		}, "dns01: exactly one provider must be set"},
		{"acme-dns and another", d, changes{
			"spec.acme.solvers.0.dns01.acmeDNS": map[string]any{"host": "h", "accountSecretRef": key},
			"spec.acme.solvers.0.dns01.webhook": map[string]any{"groupName": "g", "solverName": "s"},
		}, "dns01: exactly one provider must be set"},
		{"cloudDNS ambient", d, dns("cloudDNS", map[string]any{"project": "p"}), ""},
		{"cloudDNS without project", d, dns("cloudDNS", map[string]any{"project": ""}), "cloudDNS.project: must not be empty"},
		{"cloudDNS without key", d, dns("cloudDNS", map[string]any{"project": "p", "serviceAccountSecretRef": noKey}), "cloudDNS.serviceAccountSecretRef: set name and key"},
		{"cloudflare without any", d, dns("cloudflare", map[string]any{}), "cloudflare: exactly one of"},
		{"cloudflare with both", d, dns("cloudflare", map[string]any{"email": "e", "apiKeySecretRef": key, "apiTokenSecretRef": key}), "cloudflare: exactly one of"},
		{"cloudflare without e-mail", d, dns("cloudflare", map[string]any{"apiKeySecretRef": key}), "cloudflare.email: must be set"},
		{"cloudflare key without key", d, dns("cloudflare", map[string]any{"email": "e", "apiKeySecretRef": noKey}), "cloudflare.apiKeySecretRef: set name and key"},
		{"cloudflare token without key", d, dns("cloudflare", map[string]any{"apiTokenSecretRef": noKey}), "cloudflare.apiTokenSecretRef: set name and key"},
		{"route53 ambient", d, dns("route53", map[string]any{}), ""},
		{"route53 by a Go client", d, dns("route53", map[string]any{"region": "r", "secretAccessKeySecretRef": map[string]any{"name": ""}}), ""},
		{"route53 with two ids", d, dns("route53", map[string]any{"accessKeyID": "i", "accessKeyIDSecretRef": key}), "route53: accessKeyID and accessKeyIDSecretRef exclude each other"},
		{"route53 id without key", d, dns("route53", map[string]any{"accessKeyIDSecretRef": noKey}), "route53.accessKeyIDSecretRef: set name and key"},
		{"route53 secret without key", d, dns("route53", map[string]any{"secretAccessKeySecretRef": noKey}), "route53.secretAccessKeySecretRef: set name and key"},
		{"digitalocean without key", d, dns("digitalocean", map[string]any{"tokenSecretRef": noKey}), "digitalocean.tokenSecretRef: set name and key"},
		{"acme-dns without host", d, dns("acmeDNS", map[string]any{"host": "", "accountSecretRef": key}), "acmeDNS.host: must not be empty"},
		{"acme-dns without key", d, dns("acmeDNS", map[string]any{"host": "h", "accountSecretRef": noKey}), "acmeDNS.accountSecretRef: set name and key"},
		{"webhook without group", d, dns("webhook", map[string]any{"groupName": "", "solverName": "s"}), "webhook.groupName: must not be empty"},
		{"webhook without solver", d, dns("webhook", map[string]any{"groupName": "g", "solverName": ""}), "webhook.solverName: must not be empty"},
		{"webhook with any config", d, dns("webhook", map[string]any{"groupName": "g", "solverName": "s", "config": strs("x")}), ""},
		{"exec", d, dns("exec", map[string]any{"name": "hetzner", "config": map[string]any{"A": "b"}, "secretRef": map[string]any{"name": "s"}}), ""},
		{"exec with a path", d, dns("exec", map[string]any{"name": "../evil"}), "exec.name: must be the name of a provider"},
		{"exec without a Secret's name", d, dns("exec", map[string]any{"name": "hetzner", "secretRef": map[string]any{"name": ""}}), "exec.secretRef.name: must not be empty"},
		{"nameservers", d, changes{
			"spec.acme.solvers.0.dns01.digitalocean.tokenSecretRef": key,
			"spec.acme.solvers.0.dns01.nameservers":                 strs("ns.example.com:53", "[::1]:53", "https://dns.example.com/q"),
		}, ""},
		{"nameserver without port", d, changes{
			"spec.acme.solvers.0.dns01.digitalocean.tokenSecretRef": key,
			"spec.acme.solvers.0.dns01.nameservers":                 strs("192.0.2.1"),
		}, "nameservers: every entry must be"},
		{"nameserver by http", d, changes{
			"spec.acme.solvers.0.dns01.digitalocean.tokenSecretRef": key,
			"spec.acme.solvers.0.dns01.nameservers":                 strs("http://dns.example.com/q"),
		}, "nameservers: every entry must be"},
		{"persistent record", d, persist("issuerDomainName", "ca.example.com"), ""},
		{"persistent record and provider", d, changes{"spec.acme.solvers.0.dnsPersist01": map[string]any{}}, "exactly one of http01, dns01, dnsPersist01 and tlsALPN01"},
		{"persistent record, nameserver without port", d, persist("nameservers", strs("192.0.2.1")), "nameservers: every entry must be"},
		{"persistent record, warning", d, persist("warnBefore", "720h"), ""},
		{"persistent record, negative warning", d, persist("warnBefore", "-1h"), "dnsPersist01.warnBefore: must not be negative"},
	}
	cases = append(cases, accountLabelCases()...)
	for _, field := range []string{"clientTokenSecretRef", "clientSecretSecretRef", "accessTokenSecretRef"} {
		akamai := map[string]any{"serviceConsumerDomain": "d", "clientTokenSecretRef": key, "clientSecretSecretRef": key, "accessTokenSecretRef": key}
		akamai[field] = noKey
		cases = append(cases, ruleCase{"akamai without " + field, d, dns("akamai", akamai), "akamai." + field + ": set name and key"})
	}
	cases = append(cases, ruleCase{"akamai without host", d, dns("akamai", map[string]any{
		"serviceConsumerDomain": "", "clientTokenSecretRef": key, "clientSecretSecretRef": key, "accessTokenSecretRef": key,
	}), "akamai.serviceConsumerDomain: must not be empty"})
	return append(append(append(cases, azureCases()...), updateServerCases()...), webhookCases()...)
}

// webhookCases are about webhooks that are HTTPS servers.
func webhookCases() []ruleCase {
	webhook := func(address string, more map[string]any) changes {
		provider := map[string]any{"url": address}
		maps.Copy(provider, more)
		return changes{"spec.acme.solvers.0.dns01.webhook": provider}
	}
	const d = "dns01"
	const hook = "https://dns.example.com/challenge"
	const either, address = "webhook: set either groupName and solverName", "webhook.url: must be an https address"
	bundle, ca := "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t", map[string]any{"name": "a"}
	aggregated := func(more string, value any) changes {
		return changes{"spec.acme.solvers.0.dns01.webhook": map[string]any{"groupName": "g", "solverName": "s", more: value}}
	}
	return []ruleCase{
		{"webhook by url", d, webhook(hook, nil), ""},
		{"webhook by url with all", d, webhook("https://[2001:db8::1]:8443?zone=x", map[string]any{"caBundleSecretRef": ca, "clientCertificateSecretRef": ca, "config": strs("x")}), ""},
		{"webhook by url with bundle", d, webhook(hook, map[string]any{"caBundle": bundle}), ""},
		{"webhook nowhere", d, changes{"spec.acme.solvers.0.dns01.webhook": map[string]any{}}, either},
		{"webhook without a solver's name", d, changes{"spec.acme.solvers.0.dns01.webhook": map[string]any{"groupName": "g"}}, either},
		{"webhook in both ways", d, webhook(hook, map[string]any{"groupName": "g", "solverName": "s"}), either},
		{"webhook by url in a group", d, webhook(hook, map[string]any{"groupName": "g"}), either},
		{"webhook by http", d, webhook("http://dns.example.com", nil), address},
		{"webhook with a password", d, webhook("https://user:pass@dns.example.com/", nil), address},
		{"webhook with a fragment", d, webhook(hook+"#x", nil), address},
		{"webhook without host", d, webhook("https:///challenge", nil), address},
		{"webhook with two bundles", d, webhook(hook, map[string]any{"caBundle": bundle, "caBundleSecretRef": ca}), "webhook: caBundle and caBundleSecretRef exclude each other"},
		{"webhook with no bundle", d, webhook(hook, map[string]any{"caBundle": "eA=="}), "webhook.caBundle: must hold certificates in PEM form"},
		{"webhook with a bundle of nobody", d, webhook(hook, map[string]any{"caBundleSecretRef": map[string]any{"name": ""}}), "webhook.caBundleSecretRef.name: must not be empty"},
		{"webhook with a certificate of nobody", d, webhook(hook, map[string]any{"clientCertificateSecretRef": map[string]any{"name": ""}}), "webhook.clientCertificateSecretRef.name: must not be empty"},
		{"aggregated with bundle", d, aggregated("caBundle", bundle), "need url"},
		{"aggregated with bundle's Secret", d, aggregated("caBundleSecretRef", ca), "need url"},
		{"aggregated with certificate", d, aggregated("clientCertificateSecretRef", ca), "need url"},
	}
}

// accountLabelCases are about DNS-ACCOUNT-01.
func accountLabelCases() []ruleCase {
	const want = "accountLabel: a challenge of the type DNS-ACCOUNT-01 has one"
	webhook := map[string]any{"groupName": "g", "solverName": "s"}
	solver := func(value any) changes {
		return changes{"spec.acme.solvers.0.dns01": map[string]any{"webhook": webhook, "accountLabel": value}}
	}
	challenge := func(kind string, label any) changes {
		return changes{"spec.type": kind, "spec.accountLabel": label}
	}
	return []ruleCase{
		{"account label", "dns01", solver(true), ""},
		{"no account label", "dns01", solver(false), ""},
		{"account label that is a text", "dns01", solver("ujmmovf2vn55tgye"), "must be of type boolean"},
		{"account label without provider", "dns01", changes{"spec.acme.solvers.0.dns01": map[string]any{"accountLabel": true}}, "dns01: exactly one provider must be set"},
		{"with the account's label", "challenge", challenge("DNS-ACCOUNT-01", "ujmmovf2vn55tgye"), ""},
		{"without the account's label", "challenge", challenge("DNS-ACCOUNT-01", nil), want},
		{"with a label that is too short", "challenge", challenge("DNS-ACCOUNT-01", "ujmmovf2vn55tgy"), want},
		{"with a label that is two", "challenge", challenge("DNS-ACCOUNT-01", "ujmmovf.vn55tgye"), want},
		{"with a label and another type", "challenge", challenge("DNS-01", "ujmmovf2vn55tgye"), want},
		{"with an empty label and another type", "challenge", challenge("DNS-01", ""), ""},
		{"unknown type", "challenge", challenge("DNS-02", nil), "Unsupported value"},
	}
}

// azureCases are about Azure DNS.
func azureCases() []ruleCase {
	azure := func(more map[string]any) changes {
		provider := map[string]any{"subscriptionID": "s", "resourceGroupName": "g"}
		maps.Copy(provider, more)
		return changes{"spec.acme.solvers.0.dns01.azureDNS": provider}
	}
	identity := func(more map[string]any) changes {
		return azure(map[string]any{"managedIdentity": more})
	}
	key := secretRef("a", "b")
	const d = "dns01"
	const together = "azureDNS: clientID, clientSecretSecretRef and tenantID belong together"
	return []ruleCase{
		{"azure ambient", d, azure(nil), ""},
		{"azure without subscription", d, azure(map[string]any{"subscriptionID": ""}), "azureDNS.subscriptionID: must not be empty"},
		{"azure without group", d, azure(map[string]any{"resourceGroupName": ""}), "azureDNS.resourceGroupName: must not be empty"},
		{"azure principal", d, azure(map[string]any{"clientID": "c", "tenantID": "t", "clientSecretSecretRef": key}), ""},
		{"azure client alone", d, azure(map[string]any{"clientID": "c"}), together},
		{"azure without secret", d, azure(map[string]any{"clientID": "c", "tenantID": "t"}), together},
		{"azure secret alone", d, azure(map[string]any{"clientSecretSecretRef": key}), together},
		{"azure secret without key", d, azure(map[string]any{"clientID": "c", "tenantID": "t", "clientSecretSecretRef": map[string]any{"name": "a"}}), "azureDNS.clientSecretSecretRef: set name and key"},
		{"azure principal and identity", d, azure(map[string]any{"clientID": "c", "tenantID": "t", "clientSecretSecretRef": key, "managedIdentity": map[string]any{}}), "azureDNS.managedIdentity: excludes"},
		{"azure identity", d, identity(map[string]any{"clientID": "c", "tenantID": "t"}), ""},
		{"azure identity by both", d, identity(map[string]any{"clientID": "c", "resourceID": "r"}), "managedIdentity: clientID and resourceID exclude each other"},
		{"azure tenant alone", d, identity(map[string]any{"tenantID": "t"}), "managedIdentity.tenantID: needs clientID"},
		{"azure resource and tenant", d, identity(map[string]any{"resourceID": "r", "tenantID": "t"}), "managedIdentity.tenantID: needs clientID"},
		{"azure cloud", d, azure(map[string]any{"environment": "AzureMoonCloud"}), "Unsupported value"},
	}
}

// updateServerCases are about dynamic updates (RFC 2136).
func updateServerCases() []ruleCase {
	server := func(address string, more map[string]any) changes {
		provider := map[string]any{"nameserver": address}
		maps.Copy(provider, more)
		return changes{"spec.acme.solvers.0.dns01.rfc2136": provider}
	}
	const d = "dns01"
	const address = "rfc2136.nameserver: must be an IP address"
	const together = "rfc2136: tsigKeyName and tsigSecretSecretRef belong together"
	key := secretRef("a", "b")
	return []ruleCase{
		{"rfc2136", d, server("192.0.2.1", nil), ""},
		{"rfc2136 with port", d, server("192.0.2.1:5353", nil), ""},
		{"rfc2136 IPv6", d, server("[2001:db8::1]", nil), ""},
		{"rfc2136 IPv6 with port", d, server("[2001:db8::1]:53", nil), ""},
		{"rfc2136 bare IPv6", d, server("2001:db8::1", nil), address},
		{"rfc2136 by name", d, server("ns.example.com:53", nil), address},
		{"rfc2136 nowhere", d, server("", nil), address},
		{"rfc2136 broken", d, server("[2001:db8::1", nil), address},
		{"rfc2136 signed", d, server("192.0.2.1", map[string]any{"tsigKeyName": "k", "tsigSecretSecretRef": key, "tsigAlgorithm": "hmacsha256"}), ""},
		{"rfc2136 by a Go client", d, server("192.0.2.1", map[string]any{"tsigSecretSecretRef": map[string]any{"name": ""}}), ""},
		{"rfc2136 without key", d, server("192.0.2.1", map[string]any{"tsigKeyName": "k"}), together},
		{"rfc2136 without key name", d, server("192.0.2.1", map[string]any{"tsigSecretSecretRef": key}), together},
		{"rfc2136 key without key", d, server("192.0.2.1", map[string]any{"tsigKeyName": "k", "tsigSecretSecretRef": map[string]any{"name": "a"}}), "rfc2136.tsigSecretSecretRef: set name and key"},
		{"rfc2136 algorithm", d, server("192.0.2.1", map[string]any{"tsigKeyName": "k", "tsigSecretSecretRef": key, "tsigAlgorithm": "SHA256"}), "rfc2136.tsigAlgorithm: must be one of"},
		{"rfc2136 protocol", d, server("192.0.2.1", map[string]any{"protocol": "QUIC"}), "Unsupported value"},
	}
}
