// Package engine runs the objects of every kind the same way: observe, decide, act, write one status.
//
// A controller for a kind is a Kind: its observation, its pure decision, and a Plan that says what the actions of
// the decision mean. Everything that waits or is remembered belongs to the engine:
//
//   - calls that leave the process (a CA, a DNS server, Vault), their lanes and their outcomes (Calls);
//   - the back-off after a failed call, by class of fault;
//   - the memory of each object, which ends with the object;
//   - wake-ups: at a time, when a call has come back, when somebody rings;
//   - the write of the status, and events.
//
// So one question has one answer: who waits, for what, until when (Engine.Waits).
//
// Own writes that the watch does not show yet are kept by package ownwrites, which the engine reads through.
// The engine knows no kind of object, no machine, no signer and no solver.
package engine
