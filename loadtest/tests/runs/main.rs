//! The load test as a program, against scripted targets and real daemons.

#[path = "../support/lib.rs"]
mod support;

mod compare;
mod ends;
mod fake_targets;
mod frontends;
mod options;
mod outage;
mod pages;
mod plan;
mod process;
mod secured;
mod sweep;
mod targets;
mod tickets;
