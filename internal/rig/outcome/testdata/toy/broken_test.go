//go:build broken

package toy

var broken int = "broken"
