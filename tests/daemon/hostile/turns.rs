//! The order of turns on one shard: how many requests of a flood the daemon serves before a request
//! of another client.
//!
//! SIGSTOP stops the daemon while the clients send, so all requests have arrived when the daemon
//! continues. The IDs are in strict order, so they show the order in which the daemon serves the
//! requests. The counts do not depend on any clock.
//!
//! A connection's first turn in a flood is short and needs no permit of the scheduler. Only a few
//! connections have a permit for a long turn at the same time. Without the scheduler each
//! connection of the flood would have a long turn before the other client's request.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::failing_disk::FailingDisk;
use crate::support::http::{sample, scrape};
use crate::support::wire::EXPLICIT;
use crate::support::{Ask, DEADLINE, Daemon, Setup, poll};

const PEERS: usize = 200;
const ROUNDS: usize = 5;

/// A protocol of the flood or of the client beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrontEnd {
    Native,
    Http,
}

impl FrontEnd {
    fn path(self, daemon: &Daemon) -> PathBuf {
        daemon.path(if self == FrontEnd::Native { "native" } else { "http" })
    }

    /// Returns a request for this many IDs.
    fn request(self, count: u32) -> Vec<u8> {
        match self {
            FrontEnd::Native => Ask::of(count).wait_ms(10_000).flags(EXPLICIT).bytes(),
            FrontEnd::Http => {
                format!("GET /v1/ids?count={count}&wait=9s HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
            }
        }
    }

    /// Removes the whole replies at the start of `bytes`. Returns the first ID of each reply, or 0
    /// for a refusal. A daemon may refuse requests after it was stopped for long.
    fn take_answers(self, bytes: &mut Vec<u8>) -> Vec<u64> {
        std::iter::from_fn(|| {
            let (first, size) = match self {
                FrontEnd::Native => first_of_frame(bytes),
                FrontEnd::Http => first_of_response(bytes),
            }?;
            bytes.drain(..size);
            Some(first)
        })
        .collect()
    }
}

/// Returns the first ID of a whole frame, and the frame's size.
fn first_of_frame(bytes: &[u8]) -> Option<(u64, usize)> {
    const LIST: u8 = 0x82;
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let frame = rest.get(..u32::from_le_bytes(*length) as usize)?;
    let first = frame[4..].first_chunk::<8>().filter(|_| frame[0] == LIST);
    Some((first.map_or(0, |first| u64::from_le_bytes(*first)), 4 + frame.len()))
}

/// The end of a chunked body.
const LAST_CHUNK: &str = "\r\n0\r\n\r\n";

/// Returns the first ID of a whole response, and the response's size.
fn first_of_response(bytes: &[u8]) -> Option<(u64, usize)> {
    let text = std::str::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let body = match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => body.get(..length.parse().expect("a number"))?,
        None => &body[..body.find(LAST_CHUNK)? + LAST_CHUNK.len()],
    };
    let mut digits = body.split(|byte: char| !byte.is_ascii_digit());
    let first = digits.find(|digits| digits.len() > 9).map_or(0, |digits| digits.parse().expect("a number"));
    Some((first, head.len() + 4 + body.len()))
}

/// A connection that pipelines requests.
struct Peer {
    front_end: FrontEnd,
    stream: UnixStream,
    /// The start of a reply whose end has not arrived yet.
    unread: Vec<u8>,
    unanswered: usize,
}

impl Peer {
    fn connect(front_end: FrontEnd, daemon: &Daemon) -> Peer {
        let stream = UnixStream::connect(front_end.path(daemon)).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        Peer { front_end, stream, unread: Vec::new(), unanswered: 0 }
    }

    /// Sends requests until this many are unanswered.
    fn ask(&mut self, count: u32, unanswered: usize) {
        let more = unanswered - self.unanswered;
        self.stream.write_all(&self.front_end.request(count).repeat(more)).expect("sent");
        self.unanswered = unanswered;
    }

    fn read(&mut self) -> io::Result<Vec<u64>> {
        let mut piece = vec![0; 65_536];
        let size = self.stream.read(&mut piece)?;
        assert!(size > 0, "the daemon closed");
        self.unread.extend_from_slice(&piece[..size]);
        let answers = self.front_end.take_answers(&mut self.unread);
        self.unanswered -= answers.len();
        Ok(answers)
    }

    /// Waits for all answers. Returns the first ID of the last answer.
    fn last_answer(&mut self) -> u64 {
        let mut last = 0;
        while let Some(answers) = self.next_answers() {
            last = answers.last().copied().unwrap_or(last);
        }
        last
    }

    /// Waits for the next replies. Returns `None` if all requests are answered.
    fn next_answers(&mut self) -> Option<Vec<u64>> {
        (self.unanswered > 0).then(|| self.read().expect("answers"))
    }

    /// Returns the replies that have arrived already.
    fn arrived(&mut self) -> Vec<u64> {
        self.stream.set_nonblocking(true).expect("a socket option");
        let answers: Vec<u64> = std::iter::from_fn(|| match self.read() {
            Ok(answers) => Some(answers),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        })
        .flatten()
        .collect();
        self.stream.set_nonblocking(false).expect("a socket option");
        answers
    }
}

/// Sets up a daemon with one shard and a Unix socket for each protocol.
fn setup() -> Setup {
    let setup = Setup::bare()
        .config("shards = 1\norder = \"strict\"\nworker_ids = \"0-255\"\nlimits.stall_timeout = \"1h\"\n");
    let [native, http] = ["native", "http"].map(|name| format!("unix:{}", setup.path(name).display()));
    setup.option("--listen", native).option("--http", http).listeners(2)
}

/// Stops the daemon several times by SIGSTOP. Each time, sends a flood and one request of another
/// client before the daemon continues. Returns the largest number of requests of a flood that the
/// daemon served before that one request.
fn most_served_before(flood: FrontEnd, count: u32, unanswered: usize, modest: FrontEnd) -> usize {
    let daemon = setup().start();
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| Peer::connect(flood, &daemon)).collect();
    let mut modest = Peer::connect(modest, &daemon);
    for peer in peers.iter_mut().chain([&mut modest]) {
        peer.ask(1, 1);
        peer.last_answer();
    }
    let mut served: Vec<u64> = Vec::new();
    let mut around: Vec<(u64, u64)> = Vec::new();
    for _ in 0..ROUNDS {
        daemon.stand_still();
        served.extend(peers.iter_mut().flat_map(Peer::arrived));
        let last_before = served.iter().copied().max().unwrap_or(0);
        peers.iter_mut().for_each(|peer| peer.ask(count, unanswered));
        modest.ask(1, 1);
        daemon.signal(Signal::CONT);
        around.push((last_before, modest.last_answer()));
    }
    daemon.stand_still();
    served.extend(peers.iter_mut().flat_map(Peer::arrived));
    daemon.signal(Signal::CONT);
    let mut between = Vec::new();
    for (before, after) in around {
        between.push(served.iter().filter(|&&id| before < id && id < after).count());
    }
    println!("{flood:?} flood of {count} IDs each, {:?} beside it: {between:?}", modest.front_end);
    between.into_iter().max().unwrap_or(0)
}

#[test]
fn a_flood_does_not_delay_requests_of_other_clients() {
    use FrontEnd::{Http, Native};
    // The socket's buffer has room for all replies, even the long ones. `allowed` is the number of
    // requests of each peer that may be served first.
    for (flood, count, unanswered, modest, allowed) in [
        (Http, 1, 256, Native, 40),
        (Http, 1, 256, Http, 40),
        (Native, 1, 1_024, Http, 200),
        (Native, 4_000, 4, Native, 2),
        (Native, 4_000, 4, Http, 2),
        (Http, 1_200, 4, Native, 2),
        (Http, 1_200, 4, Http, 2),
    ] {
        let served = most_served_before(flood, count, unanswered, modest);
        assert!(served < allowed * PEERS, "{flood:?}, {modest:?}: {served} requests were served first");
    }
}

/// Each peer of the flood has a request that waits, and many requests behind it. Another client has
/// a request that waits, and one request behind it. Returns how many requests of the flood the
/// daemon served before that last request. Returns `None` if the machine was so busy that some
/// requests did not wait.
///
/// The disk delays the raise of the ceiling for seconds. After the raise, all waiting requests get
/// their IDs at the same time. The request of the other client is the last of them.
fn flood_served_first_behind_waits(daemon: &Daemon, disk: &FailingDisk) -> Option<usize> {
    const FLOOD: usize = 1_024;
    let waiting = || sample(&scrape(daemon), "snowbank_waiting_requests{source=\"default\"}");
    let [mut probe, mut modest] = [(); 2].map(|()| Peer::connect(FrontEnd::Native, daemon));
    let mut peers: Vec<Peer> = (0..PEERS).map(|_| Peer::connect(FrontEnd::Native, daemon)).collect();
    // Makes the connections busy, so that each of them needs a permit for a long turn.
    for _ in 0..2 {
        peers.iter_mut().for_each(|peer| peer.ask(1, FLOOD));
        peers.iter_mut().for_each(|peer| _ = peer.last_answer());
    }
    disk.order("sync stall 6000");
    let mut last_before = 0;
    poll("a request that waits for the ceiling", || {
        probe.ask(1, 1);
        let is_reached = waiting() > 0.0;
        last_before = if is_reached { last_before } else { probe.last_answer() };
        is_reached.then_some(())
    });
    // The disk is fast again from now on. The sync that has already begun stays slow. The next
    // sync, of the second copy of the ceilings, is fast.
    disk.works();
    peers.iter_mut().for_each(|peer| peer.ask(1, FLOOD));
    let begun = Instant::now();
    while waiting() < (1 + PEERS) as f64 {
        if begun.elapsed() > DEADLINE {
            return None;
        }
    }
    modest.ask(1, 2);
    let asked = Instant::now();
    let all_wait = std::iter::repeat_with(waiting)
        .take_while(|_| asked.elapsed() < Duration::from_secs(1))
        .any(|waiting| waiting == (2 + PEERS) as f64);
    let last = modest.last_answer();
    let served = peers.iter_mut().flat_map(|peer| std::iter::from_fn(|| peer.next_answers()).flatten());
    let served = served.filter(|&id| last_before < id && id < last).count();
    println!("behind a wait: {served}, all of them waited: {all_wait}");
    all_wait.then_some(served)
}

#[test]
fn requests_behind_a_wait_do_not_delay_other_clients() {
    let setup = setup();
    let disk = FailingDisk::new(&setup.path("state"), setup.path("disk"));
    let daemon = disk.under(setup.admin()).start();
    let served = (0..5).find_map(|_| flood_served_first_behind_waits(&daemon, &disk)).expect("all wait");
    assert!(served < 100 * PEERS, "{served} requests of the flood were served first");
}
