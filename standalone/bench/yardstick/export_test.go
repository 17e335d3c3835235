package yardstick

// SlowdownOf is what Slowdown makes of measurements.
var SlowdownOf = slowdown
