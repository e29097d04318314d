//! The client against the daemons of clients/conformance, scripted and real, and what only this
//! client has.

mod conformance;
mod fork;
mod outcome;
mod own;
mod program;
mod real_daemons;
mod steps;
