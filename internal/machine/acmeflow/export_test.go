package acmeflow

// MaxPages is maxPages.
const MaxPages = maxPages

// SameSolver is sameSolver.
var SameSolver = sameSolver
