//! The daemon of Snowbank, which hands out batches of unique, time-sortable 64-bit IDs over TCP.
//!
//! Applications link the crate `snowbank-client` (clients/rust). This crate is the program
//! `snowbank`. It publishes its modules only for its own tests and benchmarks, and promises nothing
//! about them.
//!
//! Two chains of modules meet at the shard: one makes IDs, the other serves them.
//!
//! ```text
//!  MAKE    clock ─▶ ceiling ─▶ source (cursor) ─▶ ┌───────────────┐
//!          "when"   "how far"   "which positions"  │ shard: ring,  │   one per core
//!  SERVE   client ◀─ connection ◀─ frontends ◀──── │ current run   │
//!                                                 └───────────────┘
//! ```
//!
//! # Modules
//!
//! Making IDs, each a crate (crates/) or a module of one:
//!
//! - `snowbank_core::clock`: the ID clock, a pure function of the readings of the system's clocks.
//!   It never goes back. [`os_clock`] reads the system's clocks.
//! - `snowbank_core::source`: the cursor, the only place where uniqueness is decided, and the queue
//!   of requests that wait for IDs.
//! - `snowbank_core::shard`: one core's blocks and rings of claimed IDs.
//! - `snowbank_core::keeper`: decides when ceilings are raised, and checks the wall clock.
//! - `snowbank_state`: the state file and lock files that keep ceilings durable.
//! - `snowbank_fleet`: worker IDs and ceilings that daemons on many machines share through a
//!   coordinator.
//! - `snowbank_id`: layouts and numberings. Like the core it does no I/O and reads no clock.
//!
//! Serving IDs:
//!
//! - [`access`]: the identities of clients, and how much each may draw.
//! - [`frontends`]: a protocol as the server sees it: bytes to requests, IDs to bytes.
//! - [`server`]: the daemon: listeners, threads, connections, reload and stop. `server.rs` maps
//!   its folders.
//! - [`tls`]: the listeners' certificates and handshakes. `web`: what HTTP listeners check.
//!
//! Around both:
//!
//! - [`config`]: the settings. [`cli`]: the commands.
//! - `admin`: the operator's view: metrics, the page, the status in words.
//! - [`service`]: notifications to the service manager, and the log.
//! - `snowbank_wire` and `snowbank_tls` (crates): frames, addresses, certificates. Only the commands
//!   `next` and `ping` know the client library (clients/rust).
//!
//! # One request's walk
//!
//! A client asks for one ID on an open connection. The files are below `server/shard_thread`,
//! unless another folder is named:
//!
//! 1. `connection.rs`, `run`: waits until the socket is readable.
//! 2. `connection/read.rs`: reads up to 1 KiB, with a permit 8 KiB, and begins a turn (`turn.rs`),
//!    which reads the clock.
//! 3. `connection/exchange.rs`, `serve`: takes the requests of the turn one after the other.
//! 4. `frontends/native.rs`, `step`: decodes each request.
//! 5. `allocate.rs`: takes the request's IDs, or lets the request wait.
//! 6. `crates/snowbank-core/src/shard/lane.rs`, `take`: takes IDs from the current run, else from
//!    the ring (`ring.rs` beside it), else by a claim on the cursor in
//!    `crates/snowbank-core/src/source.rs`.
//! 7. `frontends/native.rs`, `encode_ids`: encodes the IDs.
//! 8. `connection/write.rs`: writes once for all requests of the turn.
//!
//! If a request wants more IDs than the clock allows so far, the request waits in `allocate.rs`.
//! `ticker.rs` ends the wait.
//!
//! # Where to look
//!
//! - Where does Redis' INCR become IDs? `frontends/resp/ids.rs`, `incr`, decodes it;
//!   `server/shard_thread/allocate.rs` takes the IDs. memcached's `incr`:
//!   `frontends/memcached/text.rs`, and `increment` in `frontends/memcached.rs`.
//! - Who decides that a request waits, and for how long? `server/shard_thread/allocate.rs`,
//!   `wait_of`, sets the deadline; `source/wait_queue/admission.rs` of the core queues or refuses it.
//! - Who checks a token? `access/session.rs`. Who applies a rate? `server/shard_thread/limits.rs`, by
//!   `access/pace.rs`.
//! - What does one more protocol need? The top of `frontends.rs` lists it.
//! - Why is no ID handed out twice? `crates/snowbank-core/src/source.rs`: a claim moves the
//!   cursor by compare-and-swap.
//! - What happens when the wall clock goes back? `source/window.rs` of the core: `window_behind`,
//!   by the rule in `clock.rs`.
//! - What happens when the wall clock jumps forward? `clock.rs` of the core: `Wall`.
//! - What is written before an ID may be used? A higher ceiling, in both copies of the state file:
//!   `crates/snowbank-state/src/store/file.rs`.
//! - Which locks and marks does the daemon trust? `crates/snowbank-state/src/writers.rs`: those
//!   that only root, this user, and the group of a shared directory can write.
//! - Who raises ceilings, and when? `keeper.rs` of the core decides,
//!   `server/ceilings/keeper_thread.rs` runs it.
//! - What happens at a start, or while a source waits?
//!   `server/lifecycle/control.rs`: the control thread takes what each source needs, and makes each
//!   live configuration.
//! - Where does a source start after a crash? `crates/snowbank-state/src/store/plan.rs` gives the
//!   bound of the stored records, and `server/ceilings/start_sources.rs` raises it to marks, clock and
//!   fleet.
//! - What happens when the machine is restored from a snapshot? `server/restored.rs` takes all grants
//!   away, and `shard/lane.rs` of the core drops what was claimed ahead.
//! - How long does a daemon pause before it uses a new worker ID, or its own after its bound has passed?
//!   `notice.rs` of the fleet computes it, and `member/settle.rs` pauses.
//! - Who closes a slow reader's connection? `server/shard_thread/connection/write.rs`: `flush`,
//!   after `stall_timeout`.
//! - Which connection is closed when there are too many? `server/net/pending.rs`: of those that owe
//!   their token, else of those in a TLS handshake, the one that has been silent for longest.
//! - Who keeps a flood from delaying others? `server/shard_thread/scheduler.rs`.
//! - How is a full disk survived? `crates/snowbank-state/src/store/file.rs`, `write`: overwrites
//!   the state file in place, which needs no free space. A new file is made at the first
//!   start, for a state that no longer fits, and after a failed write. Without room for it, the old
//!   file is overwritten again.
//! - What happens when the coordinator is gone? `crates/snowbank-core/src/keeper.rs`, `raise`: a
//!   grant stays at the lower of both durable ceilings. IDs below it are handed out, the keeper's
//!   next poll asks again, and at the ceiling requests get `no_ceiling`.
//! - Where are a setting's default and text? In its row of `settings!`: `config/daemon.rs`,
//!   `source.rs`, `protocols.rs`, `fleet.rs` and `identities.rs`.
//! - What may a reload change? `config/diff.rs`: settings marked `Reload` in the tables of
//!   `config/`, the files of tokens and certificates, and the list of sources
//!   (`server/lifecycle/reload.rs`).
//! - Where does a reload begin and end? `server/lifecycle/stop.rs` takes the signal, and
//!   `server/lifecycle/control.rs` the requests at the socket (`service/reload_socket.rs`);
//!   `server/lifecycle/reload.rs` applies it, and each shard adopts the new configuration in
//!   `server/shard_thread/shard_loop.rs`.
//! - Why is a start refused, and in which words? `crates/snowbank-state/src/store/plan.rs` compares
//!   with the stored state, and `member/marker.rs` of the fleet with its marker.
//! - What happens when another daemon holds the worker ID? `crates/snowbank-fleet/src/rules.rs`,
//!   `Holding::see`, finds it; `server/ceilings/fleet_thread.rs` takes the grants away.
//! - Which bound stays when worker IDs are forgotten, or moved to another machine?
//!   `crates/snowbank-state/src/store/moved.rs`.
//! - Who asks the peers for their worker IDs? `server/lifecycle/ask_peers.rs`, at a start.
//! - Who raises the limit of open files (RLIMIT_NOFILE)? `cli/inputs.rs`, `allow_open_files`.
//! - When does the daemon stop? `server/lifecycle/stop.rs`.
//! - What happens at a stop? `server/lifecycle/serve_until_stop.rs`, and `server/shard_thread/drain.rs` on each
//!   shard.
//! - Which findings can a daemon have, in which words, and at which thresholds?
//!   `server/health/findings.rs`.
//! - What makes `/readyz` answer 503? A finding whose effect, in `server/health/finding.rs`, makes the
//!   daemon unready.
//! - Who logs that requests are refused? `server/reading/observer.rs`.
//! - What happens after a start that failed? The exit code decides
//!   (`server/shared/start_error.rs`), and the unit's `Restart=`.
//! - Which endpoint does the Rust client ask next? `clients/rust/src/rest.rs`; `call.rs` repeats the
//!   call.
//! - Who notices a thread that is stuck? `server/health/heartbeat.rs`.
#![forbid(unsafe_code)]

pub mod access;
mod admin;
mod amounts;
pub mod cli;
pub mod config;
pub mod frontends;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod metric_counter;
pub mod os_clock;
pub mod server;
pub mod service;
pub mod tls;
mod web;
