package status

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"chancery.dev/internal/clientside/explain"
)

// TestColoursAreTheOnlyEscapes: a terminal with colours gets no other control characters than those of the colours.
func TestColoursAreTheOnlyEscapes(t *testing.T) {
	const strange = "\x1b[2J\u009b1m\u202e\nforged"
	node := explain.Node{Kind: strange, Namespace: strange, Name: strange, State: strange, Reason: strange, Outcome: explain.Failed.String()}
	about := node
	about.About, node.Children = strange, []explain.Node{about}
	report := explain.Report{Node: node, Trouble: explain.Trouble{Cause: strange, NextTry: strange, WhatToDo: strange}}
	var out bytes.Buffer
	printer{out: &out, colour: true}.all([]explain.Report{report}, time.Now())
	said := out.String()
	for _, colour := range []string{green, yellow, red, bold, plain} {
		said = strings.ReplaceAll(said, colour, "")
	}
	if strings.ContainsAny(said, "\x1b\u009b\u202e") || strings.Contains(said, "\nforged") || !strings.Contains(said, `\u001b[2J`) {
		t.Errorf("%q", said)
	}
}
