// Package engine runs the objects of every kind the same way: observe, decide, act, write one status.
//
// A controller defines a Kind. A Kind has three main functions. Observe reads the state of an object. Decide is pure,
// and returns an action. Plan turns the action into a value of the type Plan. The engine does the rest:
//
//   - it runs the calls that leave the process (to a CA, a DNS server, Vault), limits how many calls go to one place at
//     once (Lane), and keeps the outcomes of the calls (Calls);
//   - it repeats a failed call after a back-off that depends on the class of the fault;
//   - it keeps the memory of each object until the object is gone;
//   - it wakes an object at a set time, when a call has come back, and when other code calls Ring;
//   - it writes the status, and emits events.
//
// So one list, Engine.Waits, shows all objects that wait, what they wait for, and until when.
//
// The engine reads objects through package ownwrites, so the engine sees its own writes before the watch shows them.
// The engine depends on no kind of object, no package of internal/machine, no signer and no solver.
package engine
