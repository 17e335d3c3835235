package adapter

import "strings"

// edgeDNSBody is what the library of Edge DNS puts before the body of an answer that is no error document.
const edgeDNSBody = "; Type: ; Detail: "

// unquoted is an error without the body that it quoted. The host of Edge DNS is the Issuer's choice: whoever may write
// one could read any server by that.
type unquoted struct {
	// StatusCode is that of the answer.
	StatusCode int
	text       string
}

func (u unquoted) Error() string { return u.text }

// withoutBody cuts the body off an error of Edge DNS.
func withoutBody(err error) error {
	if err == nil {
		return nil
	}
	text, _, quotes := strings.Cut(err.Error(), edgeDNSBody)
	if !quotes {
		return err
	}
	return unquoted{statusOf(err), text}
}
