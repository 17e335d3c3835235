package bundle

import (
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzRedactedText: whatever stands on the lines before and after a secret, nothing of the secret is left.
func FuzzRedactedText(f *testing.F) {
	f.Add("level=INFO msg=x", "next line")
	f.Add(`{"password":"`, `"}`)
	f.Add("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----")
	f.Add("https://user:", "@host.example")
	const secret = "hunter2Hunter2"
	key := "-----BEGIN PRIVATE KEY-----\nMIIE" + secret + "\n-----END PRIVATE KEY-----"
	f.Fuzz(func(t *testing.T, before, after string) {
		var r redactor
		for _, text := range []string{
			key, base64.StdEncoding.EncodeToString([]byte(key)), "password=" + secret, "Authorization: Bearer " + secret, "https://user:" + secret + "@host.example/",
		} {
			got := r.text(before + "\n" + text + "\n" + after)
			if strings.Contains(strings.ReplaceAll(got, after, ""), secret) && !strings.Contains(before+after, "hunter") {
				t.Errorf("%q is left of %q", got, text)
			}
		}
	})
}
