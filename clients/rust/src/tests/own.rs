//! What has no case in clients/conformance, because only this client has it.

use std::collections::HashSet;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;

use super::program::Program;
use super::steps::texts;
use crate::stats::Events;
use crate::{Client, ClientOptions, Error, Event, blocking};

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// An ordinary daemon: that of a case whose daemon hands out 1, 2, 3, … for 60 s each.
pub(crate) struct Daemon {
    address: String,
    _program: Program,
}

impl Daemon {
    pub(crate) fn start(case: &str) -> Self {
        let mut program = Program::start(&[case]);
        // Not on the caller's runtime, which may be the one of a test.
        let line: Value = std::thread::scope(|scope| {
            scope.spawn(|| runtime().block_on(program.line())).join().expect("no panic")
        });
        Self { address: texts(&line["endpoints"])[0].clone(), _program: program }
    }

    fn options(&self) -> ClientOptions {
        let mut options =
            ClientOptions::new([&self.address]).expect("an address").timeout(Duration::from_secs(20));
        options.limits.connect = Duration::from_secs(10);
        options.limits.answer = Duration::from_secs(15);
        options
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.options()).expect("a client")
    }
}

#[test]
fn threads_draw_different_ids_without_a_runtime() {
    let daemon = Daemon::start("many-threads");
    let client = blocking::Client::new(daemon.options()).expect("a client");
    let ids = client.ids();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let ids = ids.clone();
            std::thread::spawn(move || (0..1_000).map(|_| ids.next().expect("an ID")).collect::<Vec<_>>())
        })
        .collect();
    let drawn: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 8_000);
    client.ping().expect("an answer");
    assert_eq!(client.timeout(Duration::from_secs(9)).batch(3).map(|ids| ids.len()), Ok(3));
    drop(client);
    // A buffer keeps its client alive.
    for _ in 0..100_000 {
        ids.next().expect("an ID");
    }
}

/// The daemon says "stay, 2 s" to a fetch, and the client's calls have 1 s.
#[tokio::test]
async fn a_call_with_more_time_than_the_fetch_waits_for_as_long() {
    let daemon = Daemon::start("stay-beyond-the-deadline");
    let client = Client::new(daemon.options().timeout(Duration::from_secs(1))).expect("a client");
    assert!(matches!(client.batch(1).await, Err(Error::Refused(_))));
    assert_eq!(client.shared_ids().timeout(Duration::from_secs(9)).next().await, Ok(1));
}

/// The second call comes while the fetch of the first is under way, and has more time.
#[tokio::test]
async fn what_a_daemon_tells_a_fetch_is_not_asked_again() {
    let daemon = Daemon::start("tell");
    let client = Client::new(daemon.options().timeout(Duration::from_secs(1))).expect("a client");
    let short = client.shared_ids();
    let long = short.timeout(Duration::from_secs(9));
    let mut first = pin!(short.next());
    let is_pending = poll_fn(|context| Poll::Ready(first.as_mut().poll(context).is_pending())).await;
    assert!(is_pending, "the buffer was empty");
    tokio::task::yield_now().await;
    let told = long.next().await.expect_err("a refusal");
    assert_eq!(told.code(), Some(crate::ErrorCode::Malformed), "{told}");
}

/// The daemon says "stay, 2 s" to the second call.
#[tokio::test]
async fn a_close_ends_a_call_that_stays() {
    let daemon = Daemon::start("stay-beyond-the-deadline");
    let client = daemon.client();
    assert!(matches!(client.batch(1).await, Err(Error::Refused(_))));
    let staying = client.clone();
    let call = tokio::spawn(async move { staying.batch(1).await });
    while client.stats().refusals < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.close();
    // Far less than its pause, which takes a second at least.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(call.is_finished());
    assert_eq!(call.await.expect("no panic"), Err(Error::Closed));
}

/// The program blocks its thread between the connection and HELLO.
#[tokio::test]
async fn a_program_that_was_blocked_greets_a_daemon_that_is_there() {
    let daemon = Daemon::start("many-threads");
    for yields in 0..8 {
        let mut options = daemon.options();
        options.limits.connect = Duration::from_millis(200);
        let client = Client::new(options).expect("a client");
        let calling = client.clone();
        let call = tokio::spawn(async move { calling.ping().await });
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        std::thread::sleep(Duration::from_millis(250));
        assert!(call.await.expect("no panic").is_ok());
        assert_eq!(client.stats().failures, 0, "after {yields} yields");
    }
}

/// The only thread of the runtime for blocking work is busy.
#[test]
fn neither_a_connection_nor_a_look_needs_a_thread_of_the_runtime() {
    let daemon = Daemon::start("many-threads");
    let token = std::env::temp_dir().join(format!("snowbank-token-{}", std::process::id()));
    std::fs::write(&token, "s3cret").expect("a file");
    let name = daemon.address.replace("127.0.0.1", "localhost");
    let one = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let (free, busy) = std::sync::mpsc::channel::<()>();
    one.expect("a runtime").block_on(async {
        tokio::task::spawn_blocking(move || busy.recv());
        let mut options = daemon.options().token_file(&token);
        options.endpoints = ClientOptions::new([name]).expect("a name").endpoints;
        let client = Client::new(options).expect("a client");
        assert_eq!(client.batch(1).await.map(|ids| ids.len()), Ok(1));
        std::fs::remove_file(token).expect("it is there");
        let mut ids = client.ids();
        for _ in 0..100 {
            ids.next().await.expect("an ID");
        }
        let is_over = async {
            while ids.is_covered() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), is_over).await.expect("the look's cover ends");
        drop(free);
    });
}

#[tokio::test]
async fn a_thousand_calls_wait_for_one_fetch() {
    let daemon = Daemon::start("many-threads");
    let client = daemon.client();
    let ids = client.shared_ids();
    let calls: Vec<_> = (0..1_000)
        .map(|_| {
            let ids = ids.clone();
            tokio::spawn(async move { ids.next().await })
        })
        .collect();
    let mut drawn = HashSet::new();
    for call in calls {
        drawn.insert(call.await.expect("no panic").expect("an ID"));
    }
    assert_eq!(drawn.len(), 1_000);
    // One more may have begun ahead.
    assert!(client.stats().calls <= 2, "{:?}", client.stats());
}

#[test]
fn an_event_may_wait_for_its_own_client() {
    let daemon = Daemon::start("many-threads");
    let waiting = std::sync::Arc::new(std::sync::OnceLock::<blocking::Client>::new());
    let (told, ids) = mpsc::channel();
    let own = waiting.clone();
    let options = daemon.options().on_event(move |_| {
        drop(told.send(own.get().expect("set before the first call").batch(1)));
    });
    let client = waiting.get_or_init(|| blocking::Client::new(options).expect("a client"));
    let id = client.batch(1).expect("an ID");
    assert_ne!(ids.recv().expect("an event"), Ok(id));
}

#[tokio::test]
async fn no_call_waits_for_the_function_for_events() {
    let (daemon, address) = (Daemon::start("many-threads"), misfit());
    let (hold, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let options = ClientOptions::new([&address, &daemon.address]).expect("two addresses").prefer_first(true);
    let options = options.on_event(move |_| {
        held.lock().expect("no panic").recv().ok();
    });
    let client = Client::new(options).expect("a client");
    assert_eq!(client.batch(1).await, Ok(vec![1]));
    assert_eq!(client.stats().failures, 1);
    drop(hold);
}

#[test]
fn events_that_are_not_heard_are_lost_beyond_a_thousand() {
    let (hold, held) = mpsc::channel::<()>();
    let (told, heard) = mpsc::channel();
    let (held, told) = (std::sync::Mutex::new(held), std::sync::Mutex::new(told));
    let events = std::sync::Arc::new(Events::new(std::sync::Arc::new(move |event: &Event| {
        held.lock().expect("no panic").recv().ok();
        told.lock().expect("no panic").send(event.clone()).expect("the test listens");
        assert_ne!(*event, numbered(0), "a mistake of the application");
    })));
    (0..2_000).for_each(|number| events.tell(numbered(number)));
    drop(hold);
    let kept = (0..1_000).map(|_| heard.recv_timeout(Duration::from_secs(60)).expect("it is told"));
    // The thread may have taken one before the others came.
    let one_more = std::iter::from_fn(|| heard.recv_timeout(Duration::from_secs(1)).ok());
    let heard: Vec<_> = kept.chain(one_more).collect();
    assert!(heard.len() <= 1_001, "{}", heard.len());
    assert!(heard.iter().enumerate().all(|(number, heard)| *heard == numbered(number)));
    events.tell(numbered(0));
}

fn numbered(number: usize) -> Event {
    Event::Connected { endpoint: format!("{number}").into() }
}

/// A blocking call in async code blocks the thread, and does not panic.
#[tokio::test]
async fn a_blocking_call_works_inside_a_runtime() {
    let daemon = Daemon::start("many-threads");
    let client = blocking::Client::new(daemon.options()).expect("a client");
    assert_eq!(client.batch(2).map(|ids| ids.len()), Ok(2));
    client.close_within(Duration::MAX).expect("no fork");
    assert_eq!(client.batch(2), Err(Error::Closed));
}

#[test]
fn a_call_fails_after_the_clients_runtime_has_ended() {
    let daemon = Daemon::start("many-threads");
    let first = runtime();
    let client = first.block_on(async { daemon.client() });
    let mut ids = client.ids();
    drop(first);
    assert_eq!(runtime().block_on(ids.next()), Err(Error::Closed));
    assert_eq!(runtime().block_on(client.batch(1)), Err(Error::Closed));
}

#[test]
fn a_client_outside_a_runtime_is_refused_with_what_to_do() {
    let error = Client::new(ClientOptions::default()).expect_err("no runtime");
    assert_eq!(error, Error::NoRuntime);
    assert!(error.to_string().contains("call Client::new in async code"), "{error}");
}

/// An endless deadline is the usual way to say "no limit".
#[tokio::test]
async fn the_longest_timeouts_are_allowed_and_zero_is_not() {
    let daemon = Daemon::start("many-threads");
    let client = Client::new(daemon.options().timeout(Duration::MAX)).expect("a client");
    assert_eq!(client.batch(1).await, Ok(vec![1]));
    assert!(client.ids().next().await.is_ok());
    let tool = Client::new(daemon.options().timeout(Duration::MAX).fail_fast(true)).expect("a client");
    assert!(tool.batch(1).await.is_ok());
    let none = client.timeout(Duration::ZERO);
    assert!(matches!(none.batch(1).await, Err(Error::BadOption(_))));
    assert!(matches!(none.ids().next().await, Err(Error::BadOption(_))));
    assert!(matches!(Client::new(daemon.options().timeout(Duration::ZERO)), Err(Error::BadOption(_))));
    assert!(matches!(Client::new(daemon.options().source("")), Err(Error::BadOption(_))));
}

#[tokio::test]
async fn a_dropped_draw_loses_no_id() {
    let daemon = Daemon::start("many-threads");
    let mut ids = daemon.client().ids();
    {
        let mut next = pin!(ids.next());
        let is_pending = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending())).await;
        assert!(is_pending, "the buffer was empty");
    }
    for id in 1..=16 {
        assert_eq!(ids.next().await, Ok(id));
    }
}

/// A test cannot make the machine sleep, so it moves the wall clock of its thread.
#[tokio::test]
async fn ids_are_dropped_after_the_machine_has_slept() {
    let daemon = Daemon::start("many-threads");
    let client = daemon.client();
    let mut ids = client.ids();
    assert_eq!(ids.next().await, Ok(1));
    crate::birth::SLEPT.set(Duration::from_secs(61));
    assert_eq!(ids.try_next(), Ok(None));
    assert_eq!(client.stats().dropped, 15);
    assert_eq!(ids.next().await, Ok(17));
}

#[tokio::test]
async fn the_figures_of_a_buffer_are_those_of_its_ids() {
    let daemon = Daemon::start("many-threads");
    let client = daemon.client();
    let mut ids = client.ids();
    for _ in 0..10_000 {
        ids.next().await.expect("an ID");
    }
    drop(ids);
    assert_eq!(client.stats().ids, 10_000);
}

#[tokio::test]
async fn a_call_that_is_late_before_it_asks_draws_nothing() {
    let daemon = Daemon::start("many-threads");
    let client = daemon.client();
    client.ping().await.expect("an answer");
    let late = client.timeout(Duration::from_nanos(1));
    for _ in 0..100 {
        assert!(matches!(late.batch(1_000).await, Err(Error::Timeout { .. })));
    }
    assert_eq!(client.batch(1).await, Ok(vec![1]));
}

/// Returns the address of a daemon that sends a frame that answers nothing in one packet with WELCOME.
fn misfit() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        socket.read_exact(&mut [0; 18]).expect("a HELLO");
        let mut sent = vec![20, 0, 0, 0, 0x85, 0, 1, 0, 1, 0, 0xe8, 3, 1, 0, 0, 0];
        sent.extend([[7; 8], [4, 0, 0, 0, 0x84, 0, 9, 0]].concat());
        socket.write_all(&sent).expect("a client");
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_is_told_before_failed() {
    let (told, events) = mpsc::channel();
    let options = ClientOptions::new([&misfit(), "127.0.0.1:1"]).expect("two addresses").prefer_first(true);
    let options = options.on_event(move |event| {
        if matches!(event, Event::Connected { .. }) {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(told.send(event.clone()));
    });
    let client = Client::new(options.timeout(Duration::from_secs(1))).expect("a client");
    client.ping().await.expect_err("a lost connection");
    assert!(matches!(events.recv(), Ok(Event::Connected { .. })));
    assert!(matches!(events.recv(), Ok(Event::Failed { .. })));
}
