package apiwire

import "bytes"

// The scanner finds its way in JSON (RFC 8259) without decoding it. Of what is not JSON it
// finds no end, or the wrong one: whoever decodes afterwards checks.

// members calls each for the members of the object at data[i]: with the key as it is
// written, and where the value begins and ends. It stops where each is false; and reports
// whether it got to the object's end.
func members(data []byte, i int, each func(key []byte, from, to int) bool) bool {
	return sequence(data, i, '{', '}', func(i int) (int, bool) {
		end := skipString(data, i)
		if end < 0 {
			return -1, false
		}
		from := space(data, end)
		if at(data, from) != ':' {
			return -1, false
		}
		from = space(data, from+1)
		to := skip(data, from)
		return to, to >= 0 && each(data[i+1:end-1], from, to)
	})
}

// elements calls each with where the elements of the array at data[i] begin and end.
func elements(data []byte, i int, each func(from, to int) bool) bool {
	return sequence(data, i, '[', ']', func(i int) (int, bool) {
		to := skip(data, i)
		return to, to >= 0 && each(i, to)
	})
}

// sequence goes through what stands between two brackets, with commas. One is called for
// where each item begins; it returns where that ends, and whether to go on.
func sequence(data []byte, i int, opening, closing byte, one func(i int) (int, bool)) bool {
	if at(data, i) != opening {
		return false
	}
	i = space(data, i+1)
	if at(data, i) == closing {
		return true
	}
	for {
		end, more := one(i)
		if !more {
			return false
		}
		i = space(data, end)
		switch at(data, i) {
		case closing:
			return true
		case ',':
			i = space(data, i+1)
		default:
			return false
		}
	}
}

// skip returns where the value at data[i] ends, negative if it does not.
func skip(data []byte, i int) int {
	switch at(data, i) {
	case '"':
		return skipString(data, i)
	case '{', '[':
		return skipNested(data, i)
	default:
		end := bytes.IndexAny(data[min(i, len(data)):], ",]} \t\r\n")
		if end <= 0 {
			return -1
		}
		return i + end
	}
}

func skipNested(data []byte, i int) int {
	for depth := 0; i >= 0 && i < len(data); {
		switch data[i] {
		case '"':
			i = skipString(data, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// skipString returns where the string at data[i] ends: at a quote behind an even number of
// backslashes.
func skipString(data []byte, i int) int {
	if at(data, i) != '"' {
		return -1
	}
	for i++; ; i++ {
		quote := bytes.IndexByte(data[i:], '"')
		if quote < 0 {
			return -1
		}
		i += quote
		escapes := 0
		for data[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func space(data []byte, i int) int {
	for {
		switch at(data, i) {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
}

// at is data[i], or 0 beyond the end.
func at(data []byte, i int) byte {
	if i < 0 || i >= len(data) {
		return 0
	}
	return data[i]
}
