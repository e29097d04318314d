//! A shard's thread: its runtime, its shard, and the connections that the thread serves.
//!
//! - `shard_loop`: the thread's main loop. `open`: opens an accepted connection. `drain`: the thread's
//!   part of a stop.
//! - `thread_state`: the state that the thread's tasks share. `turn`: one turn of a connection.
//!   `turn_state`: the buffers that a turn borrows.
//! - `membership`: a connection's membership in the thread. `wakers`: by them, a stop or a reload wakes
//!   the connections.
//! - `connection`: one connection, from bytes read to bytes written. This is the only module that
//!   sees both a front end and a shard.
//! - `allocate`: allocates IDs for a request of any protocol, at once or after a wait.
//! - `limits`: holds a client to its sources and its rate.
//! - `backlog`: the IDs of a reply that is longer than a frame.
//! - `welcome`: the WELCOME that answers a client's HELLO.
//! - `ticker`: hands IDs to the requests that wait for them.
//! - `scheduler`: prevents connections that send or receive much from delaying other connections.

mod allocate;
mod backlog;
mod connection;
mod drain;
mod limits;
mod membership;
mod open;
pub(crate) mod scheduler;
pub(crate) mod shard_loop;
pub(crate) mod thread_state;
mod ticker;
mod turn;
mod turn_state;
mod wakers;
mod welcome;
