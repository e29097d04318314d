//! A name whose address changes. Sockets are real here, because the simulated wire looks no name
//! up.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

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

/// Three daemons: the one behind the name, the one at its later address, and one at an address of
/// its own.
struct Fleet {
    wire: Wire,
    old: Listener,
    _moved: Listener,
    other: Listener,
}

const OLD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const MOVED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

impl Fleet {
    async fn start() -> Self {
        let wire = Wire::new(1, &[1, 1, 1]);
        let old = Listener::start(&wire, 0, (OLD, 0)).await;
        let moved = Listener::start(&wire, 1, (MOVED, old.address.port())).await;
        let other = Listener::start(&wire, 2, (Ipv4Addr::LOCALHOST, 0)).await;
        ADDRESS.set(OLD);
        Self { wire, old, _moved: moved, other }
    }

    /// Returns options for the name and further addresses, with limits that a busy machine keeps.
    fn options(&self, further: Option<SocketAddr>) -> ClientOptions {
        let name = format!("{NAME}:{}", self.old.address.port());
        let addresses = [name].into_iter().chain(further.map(|address| address.to_string()));
        let limit = Duration::from_secs(40);
        let options = ClientOptions::new(addresses).expect("sound addresses").backoff(ms(1), ms(20));
        options.timeout(limit).connect_timeout(limit).answer_timeout(limit)
    }
}

/// Returns the index of the daemon that serves.
async fn serving(wire: &Wire, client: &Client) -> usize {
    let batch = client.batch(1).await.expect("an ID");
    wire.world().origin(batch.last().expect("an ID"))
}

#[tokio::test]
async fn a_name_is_looked_up_again() {
    let fleet = Fleet::start().await;
    let client = Client::new(fleet.options(None)).expect("a client");
    assert_eq!(serving(&fleet.wire, &client).await, 0);
    ADDRESS.set(MOVED);
    fleet.old.end(&fleet.wire, 0).await;
    assert_eq!(serving(&fleet.wire, &client).await, 1);
}

#[tokio::test]
async fn an_earlier_name_is_looked_up_again_if_it_is_preferred() {
    let fleet = Fleet::start().await;
    let options = fleet.options(Some(fleet.other.address)).prefer_first(true);
    let client = Client::new(options).expect("a client");
    assert_eq!(serving(&fleet.wire, &client).await, 0);
    fleet.old.end(&fleet.wire, 0).await;
    assert_eq!(serving(&fleet.wire, &client).await, 2);
    ADDRESS.set(MOVED);
    for _ in 0..60_000 {
        if serving(&fleet.wire, &client).await == 1 {
            return;
        }
        sleep(ms(1)).await;
    }
    panic!("the name was not looked up again");
}
