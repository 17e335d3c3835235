package fault

import "regexp"

var quotation = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// Unquoted is what an error says without what it quotes. Go's HTTP client quotes the beginning of
// an answer that is not HTTP, and whoever may name a server could read other servers by that.
func Unquoted(err error) string {
	return quotation.ReplaceAllLiteralString(err.Error(), `"…"`)
}
