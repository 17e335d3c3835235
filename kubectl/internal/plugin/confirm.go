package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrDeclined says that the user has answered no.
var ErrDeclined = errors.New("nothing was changed")

// Confirm asks the user whether to go on, if there is a user at a terminal: a script has decided already.
func Confirm(streams Streams, yes bool) error {
	if yes || !IsTerminal(streams.In) {
		return nil
	}
	return confirm(streams.In, streams.ErrOut)
}

func confirm(in io.Reader, out io.Writer) error {
	fmt.Fprint(out, "Go on? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return ErrDeclined
}
