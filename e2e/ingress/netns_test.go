package ingress_test

import (
	"os"
	"testing"

	"chancery.dev/internal/rig/netns"
)

// The addresses of the test's own network namespace. An EndpointSlice takes no
// loopback addresses, and CAs ask port 80.
const (
	plainAddress  = "10.89.0.1" // Traefik
	secureAddress = "10.89.0.2" // Traefik that redirects to HTTPS
	responder1    = "10.89.0.11"
	responder2    = "10.89.0.12"
)

func TestMain(m *testing.M) {
	os.Exit(netns.Run(m, plainAddress+"/32", secureAddress+"/32", responder1+"/32", responder2+"/32"))
}
