package fault

import "strings"

// maxQuote bounds what Quote returns, in bytes.
const maxQuote = 512

// Quote returns what the status of an object may show of a text that another party has sent: one line of at most
// 512 bytes of UTF-8. A text that was cut ends with "…".
func Quote(text string) string {
	const cut = "…"
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if len(text) > maxQuote {
		text = strings.ToValidUTF8(text[:maxQuote-len(cut)], "") + cut
	}
	return text
}
