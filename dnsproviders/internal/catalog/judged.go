package catalog

import "slices"

// Judged reports whether every connection of the provider is made by http.DefaultTransport, which judges its address
// and refuses redirects to another host (package adapter). The others bring a transport of their own, or one that asks
// nobody, or speak DNS, or have code that may: TestJudged finds them in their source.
func (e Entry) Judged() bool { return !slices.Contains(Unjudged(), e.Name) }

// Unjudged are the names of the providers whose connections are not all judged.
func Unjudged() []string {
	return []string{
		"acmedns", "alidns", "aliesa", "baiducloud", "constellix", "desec", "dnsupdate", "edgedns", "edgeone", "efficientip", "exoscale",
		"huaweicloud", "infoblox", "ispconfig", "liara", "lightsail", "linode", "liquidweb", "namecheap", "namesurfer", "octenium",
		"oraclecloud", "otc", "regru", "sakuracloud", "selectelv2", "tencentcloud", "volcengine", "vultr", "yandexcloud",
	}
}
