package fault

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxQuote bounds, in bytes, the words that Quote returns.
	MaxQuote = 512
	// MaxQuotedLink bounds, in bytes, the link beside them.
	MaxQuotedLink = 4 << 10
	// maxQuoted bounds, in bytes, how much of a text Quote and Cut read.
	maxQuoted = 64 << 10
	// ellipsis stands where words are missing.
	ellipsis = "…"
)

// Quote returns what people may be shown of a text that another party has sent: one line of UTF-8 without control
// characters, of at most MaxQuote bytes, cut as Cut does it.
func Quote(text string) string {
	return Cut(line(text[:min(len(text), maxQuoted)]), MaxQuote)
}

// Cut returns a text, or the first bytes of one that has more than most. A text that was cut has "…" where words are
// missing. A link is never cut, because half of one leads nowhere: the first link that has no room is appended whole,
// and one of more than MaxQuotedLink bytes is left out.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if text = strings.ToValidUTF8(text[:min(len(text), maxQuoted)], ""); text == "" {
		return ellipsis
	}
	end := min(most-len(ellipsis), len(text)-1)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	from, to := link(text, 0)
	for from >= 0 && to <= end {
		from, to = link(text, to)
	}
	if from < 0 {
		return text[:end] + ellipsis
	}
	words, whole := strings.TrimSpace(text[:min(from, end)]), text[from:to]
	switch {
	case len(whole) > MaxQuotedLink:
		return words + ellipsis
	case from > end:
		words += ellipsis
	}
	if to < len(text) {
		whole += " " + ellipsis
	}
	return strings.TrimSpace(words + " " + whole)
}

// line returns a text without control characters, and with one space for each run of white space.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// link is where the first link at or after a place begins and ends; -1 if there is none.
func link(text string, after int) (from, to int) {
	from = -1
	for _, scheme := range []string{"https://", "http://"} {
		if at := strings.Index(text[after:], scheme); at >= 0 && (from < 0 || after+at < from) {
			from = after + at
		}
	}
	if from < 0 {
		return -1, -1
	}
	if length := strings.IndexAny(text[from:], " \"<>\n\t"); length >= 0 {
		return from, from + length
	}
	return from, len(text)
}

// Links are the links in a text that Quote has returned.
func Links(text string) (links []string) {
	for from, to := link(text, 0); from >= 0; from, to = link(text, to) {
		links = append(links, strings.TrimRight(text[from:to], ".,;:)'"))
	}
	return links
}
