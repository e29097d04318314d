//! Black-box tests: the real daemon as a child process, over its sockets, signals and files. Only
//! [`allocations`] runs the library, since a count of allocations needs the code in its own
//! process.

mod admin;
mod allocations;
mod check_cli;
mod clock_steps;
mod crashes;
mod credentials;
mod decode_cli;
mod exit_codes;
mod fairness;
mod fleet;
mod fleet_churn;
mod front_ends;
mod frontend_clients;
mod frontend_http;
mod frontend_memcached;
mod frontend_noeqd;
mod frontend_resp;
mod frontend_rules;
mod hostile;
mod identities;
mod idle;
mod limits;
mod listeners;
mod lock_files;
mod manifests;
mod marks;
mod monitoring;
mod next_cli;
mod order;
mod origins;
mod peers;
mod real_disk;
mod recipes;
mod reload;
mod secure;
mod serve_cli;
mod server;
mod service;
mod sql;
mod starts;
mod state;
mod stop;
mod tickets;
mod tls;
mod units;

use snowbank_testkit as support;
