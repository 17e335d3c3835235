package order_test

import (
	"testing"

	"chancery.dev/internal/rig/flows"
)

var (
	start = flows.Start()
	equal = flows.Equal
)

func TestMain(m *testing.M) { flows.Main(m) }
