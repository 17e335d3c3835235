//go:build !race

package growth

const underRace = false
