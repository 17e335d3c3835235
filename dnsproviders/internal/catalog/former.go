package catalog

// gone says what to write in place of a provider that version 4 of lego had and version 5 does not. Providers that only
// got another name are found by the old one, an alias.
func gone(name string) string {
	const closed = "its service has closed; move the zone to another provider and write the name of that one"
	switch name {
	case "brandit":
		return "Abion has taken the service over, with another API; write abion, with ABION_API_KEY"
	case "dnspod":
		return "write tencentcloud, with TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY"
	case "iij":
		return "write iijdpf, with IIJ_DPF_API_TOKEN and IIJ_DPF_DPM_SERVICE_CODE"
	case "cloudxns", "googledomains", "iwantmyname":
		return closed
	}
	return ""
}

// former finds variables that a provider read in version 4 of lego and does not read now. Without a needless one, the
// provider does the same; one that was relied on chose where the provider sends its requests.
func former(provider, variable string) (needless, relied bool) {
	switch provider + " " + variable {
	case "artfiles ARTFILES_TTL", "azuredns AZURE_POLLING_INTERVAL", "azuredns AZURE_PROPAGATION_TIMEOUT", "azuredns AZURE_TTL",
		"nicru NICRU_SERVICE_NAME", "websupport WEBSUPPORT_SEQUENCE_INTERVAL":
		return true, false
	case "azuredns AZURE_METADATA_ENDPOINT", "selectel SELECTEL_BASE_URL", "vscale VSCALE_BASE_URL":
		return false, true
	}
	return false, false
}
