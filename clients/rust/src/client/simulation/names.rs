//! A name whose address changes. Sockets are real here, because the simulated wire looks no name
//! up.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::world::{Mode, Wire};
use super::{daemon, ms};
use crate::client::{Client, ClientOptions};

/// The name that only these tests know.
const NAME: &str = "ids.example";

thread_local! {
    /// The address of the name, for the test that runs on this thread.
    static ADDRESS: Cell<Ipv4Addr> = const { Cell::new(Ipv4Addr::LOCALHOST) };
}

/// Looks up the name of these tests. Returns `None` for any other.
pub(in crate::client) fn look_up(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    (host == NAME).then(|| vec![SocketAddr::new(IpAddr::V4(ADDRESS.get()), port)])
}

/// A daemon that listens on a socket of this machine.
struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    async fn start(wire: &Wire, index: usize, address: (Ipv4Addr, u16)) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let wire = wire.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let life = wire.world().daemons[index].life.subscribe();
                tokio::spawn(daemon::serve(wire.clone(), index, life, stream));
            }
        });
        Self { address, task }
    }

    /// Ends the daemon and its connections.
    async fn end(self, wire: &Wire, index: usize) {
        self.task.abort();
        self.task.await.expect_err("it was aborted");
        wire.world().set(index, Mode::Down);
    }
}

const OLD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const MOVED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Returns the index of the daemon that serves.
async fn serving(wire: &Wire, client: &Client) -> usize {
    let batch = client.batch(1).await.expect("an ID");
    wire.world().origin(batch.last().expect("an ID"))
}

/// One daemon is behind the name at first, and another one at its later address.
#[tokio::test]
async fn a_name_is_looked_up_again() {
    let wire = Wire::new(1, &[1, 1]);
    let old = Listener::start(&wire, 0, (OLD, 0)).await;
    let port = old.address.port();
    let _moved = Listener::start(&wire, 1, (MOVED, port)).await;
    ADDRESS.set(OLD);
    // Limits that even a busy machine meets.
    let limit = Duration::from_secs(40);
    let options = ClientOptions::new([format!("{NAME}:{port}")]).expect("an address").backoff(ms(1), ms(20));
    let options = options.timeout(limit).connect_timeout(limit).answer_timeout(limit);
    let client = Client::new(options).expect("a client");
    assert_eq!(serving(&wire, &client).await, 0);
    ADDRESS.set(MOVED);
    old.end(&wire, 0).await;
    assert_eq!(serving(&wire, &client).await, 1);
}
