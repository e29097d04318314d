use std::future::Future;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::os_clock;

use super::*;
use crate::access::{Identity, Rules, Session};
use crate::config::{ANONYMOUS, IdentitySettings, SourceSettings};
use crate::frontends::Resp;
use crate::server::common::tests::common_of;
use crate::server::net::socket_stream::SocketStream;
use crate::server::shard_thread::connection::Connection;
use crate::server::shard_thread::membership::Membership;
use crate::server::shard_thread::ticker;
use snowbank_core::clock::Now;
use snowbank_core::source::{OnStepBack, SequenceStart, Source};
use snowbank_id::layout::{Layout, Position, Run, UnixMicros, WorkerSet};
use snowbank_id::numbering::{Numbering, TicketCounter};

/// Returns the state of a shard's thread, and its only source: a ticket counter whose ceiling is 0.
fn thread() -> (Rc<ThreadState>, Arc<Source>) {
    let counter = TicketCounter::new("orders", 1, 1).expect("a counter");
    thread_of(counter.into(), snowbank_core::source::Rules::TICKETS)
}

/// Returns the state of a shard's thread, and its only source, whose ceiling is 0.
fn thread_of(numbering: Numbering, rules: snowbank_core::source::Rules) -> (Rc<ThreadState>, Arc<Source>) {
    let (common, source) = common_of(numbering, rules);
    (Rc::new(ThreadState::new(common, 0)), source)
}

fn ready<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Allocates the IDs of a request as a connection does. Returns the IDs or the refusal.
async fn allocate(
    thread: &Rc<ThreadState>,
    session: &mut Session,
    protocol: Protocol,
    ask: Ask,
) -> Result<Vec<Run>, Words> {
    let read_at = os_clock::boot();
    let request = Request { ask, form: (), read_at, size: 0 };
    let mut parked: Option<Parked<()>> = None;
    loop {
        if let Some(parked) = &mut parked {
            parked.ready(thread).await;
        }
        let next = Turn::take(thread, session, |turn| {
            let allocated = match parked.take() {
                None => turn.allocate(request, || 0),
                Some(parked) => parked.resume(turn),
            };
            match allocated {
                Ok(()) => Ok(Ok(std::mem::take(&mut turn.state.runs))),
                Err(NotYet::Refused(reason)) => Ok(Err(turn.refuse(&ask, protocol, reason))),
                Err(NotYet::Parked(parked)) => Err(parked),
            }
        });
        match next {
            Ok(answer) => return answer,
            Err(next) => parked = Some(next),
        }
    }
}

#[test]
fn a_reading_older_than_a_clock_step_refuses_no_request() {
    const SECOND_US: i64 = 1_000_000;
    let layout = Layout::resolve("twitter").expect("a preset");
    let numbering = Numbering::new(layout, WorkerSet::single(0)).expect("worker 0 exists");
    let rules = snowbank_core::source::Rules {
        burst_window: Duration::from_millis(10),
        max_ahead: Duration::from_secs(10),
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Zero,
    };
    let (thread, source) = thread_of(numbering, rules);
    let mut session = session();
    source.grant().raise(source.numbering().end());
    let now = thread.now();
    let mut rng = fastrand::Rng::with_seed(1);
    source.claim(&source.window(now), 1, &mut rng).expect("an ID for a thread that has seen the step");
    let late = Now {
        wall: UnixMicros(now.wall.0 - 5 * SECOND_US / 2),
        boot: BootMicros(now.boot.0 - SECOND_US / 10),
        jumped: false,
    };
    let allocated = {
        let config = thread.live_config.borrow();
        let state = &mut *thread.turn.borrow_mut();
        state.ticker_wakes_at = Some(Instant::now());
        let mut turn = Turn::begin(&thread, &config, state, &mut session, thread.now());
        turn.state.shard.wake(late);
        let ask = ask(Duration::from_secs(1));
        turn.allocate(Request { ask, form: (), read_at: now.boot, size: 0 }, || 0)
    };
    assert!(matches!(allocated, Err(NotYet::Parked(Parked::Queued(_)))), "the request waits");
    assert!(is_woken(&thread), "with the new reading, the IDs are available");
}

/// Returns true if the ticker was woken.
fn is_woken(thread: &ThreadState) -> bool {
    ready(pin!(thread.common.wake_ups.shard_woken(0))).is_some()
}

#[test]
fn a_request_that_need_not_wait_for_a_tick_wakes_the_ticker() {
    let (thread, source) = thread();
    let (mut first, mut second) = (session(), session());
    let mut large = pin!(allocate(&thread, &mut first, Protocol::Resp, ask(LONG)));
    assert!(ready(large.as_mut()).is_none() && is_woken(&thread), "the ticker must ask for a higher ceiling");
    source.grant().raise(Position(5));
    ticker::advance(&thread);
    thread.turn.borrow_mut().ticker_wakes_at = Some(Instant::now());
    let one = Ask { count: 1, ..ask(2 * LONG) };
    let mut small = pin!(allocate(&thread, &mut second, Protocol::Resp, one));
    assert!(ready(small.as_mut()).is_none() && is_woken(&thread), "the request fits below the ceiling");
    ticker::advance(&thread);
    assert!(ready(small.as_mut()).is_some_and(|drawn| drawn.is_ok()));
}

#[test]
fn a_request_leaves_the_wait_queue_when_its_client_leaves() {
    let (thread, source) = thread();
    let mut session = session();
    {
        let mut drawn = pin!(allocate(&thread, &mut session, Protocol::Resp, ask(LONG)));
        assert!(ready(drawn.as_mut()).is_none(), "the request waits for the ceiling");
        assert_eq!(source.wait_queue().admitted_ids(), 10);
    }
    assert!(thread.turn.borrow().waiters.is_empty());
    assert_eq!(source.wait_queue().admitted_ids(), 0);
}

/// Returns a request for 10 numbers that may wait for `wait`.
fn ask(wait: Duration) -> Ask {
    Ask { source: 0, count: 10, wait_ms: Some(wait.as_millis() as u32), partial: false }
}

fn session() -> Session {
    Session::new(&Rules::default(), 0, None, true)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_request_begins_again_if_its_ids_are_revoked() {
    let (thread, source) = thread();
    let mut session = session();
    let mut drawn = pin!(allocate(&thread, &mut session, Protocol::Resp, ask(LONG)));
    assert!(ready(drawn.as_mut()).is_none(), "the request waits for the ceiling");
    source.grant().raise(Position(15));
    ticker::advance(&thread);
    source.grant().revoke();
    assert!(ready(drawn.as_mut()).is_none(), "the request waits for the ceiling again");
    source.grant().raise(Position(25));
    ticker::advance(&thread);
    source.grant().revoke();
    source.grant().raise(Position(40));
    let runs = ready(drawn.as_mut()).expect("the IDs are there").expect("no refusal");
    assert_eq!(
        runs,
        [Run { first: 21, count: 10, stride: 1 }],
        "the IDs of the two revoked grants are skipped"
    );
    assert!(thread.turn.borrow().waiters.is_empty());
}

/// Revokes the IDs of a request that may wait for `wait`, and calls `meanwhile`. Returns the code
/// with which the request is then refused, and whether the refusal says when to retry.
fn refused_after(wait: Duration, meanwhile: impl FnOnce(&ThreadState, &Source)) -> (ErrorCode, bool) {
    let (thread, source) = thread();
    let mut session = session();
    let mut drawn = pin!(allocate(&thread, &mut session, Protocol::Resp, ask(wait)));
    assert!(ready(drawn.as_mut()).is_none(), "the request waits for the ceiling");
    source.grant().raise(Position(15));
    ticker::advance(&thread);
    source.grant().revoke();
    meanwhile(&thread, &source);
    let words = ready(drawn.as_mut()).or_else(|| {
        ticker::advance(&thread);
        ready(drawn.as_mut())
    });
    let words = words.expect("the wait is over").expect_err("the IDs are lost");
    (words.code, words.retry_after.is_some())
}

/// Completes once `holds` returns true.
async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn replies_keep_their_order_if_a_request_begins_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
    runtime.block_on(async {
        let (thread, source) = thread();
        let (mut peer, socket) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        peer.set_nonblocking(true).and_then(|()| socket.set_nonblocking(true)).expect("two sockets");
        let stream = SocketStream::register(socket.into()).expect("a reactor");
        let front = Resp::default();
        let mut connection =
            Connection::new(stream, front, Membership::new(Rc::clone(&thread)), session(), None);
        let events = async {
            peer.write_all(b"INCR orders\r\nPING\r\n").expect("there is room");
            for _ in 0..2 {
                until(|| !thread.turn.borrow().waiters.is_empty()).await;
                source.grant().raise(Position(10));
                ticker::advance(&thread);
                source.grant().revoke();
            }
            until(|| !thread.turn.borrow().waiters.is_empty()).await;
            source.grant().raise(Position(10));
            ticker::advance(&thread);
            let expected = b":3\r\n+PONG\r\n";
            let mut replies = Vec::new();
            until(|| {
                // Reading fails while there is nothing to read.
                let _ = peer.read_to_end(&mut replies);
                replies.len() >= expected.len()
            })
            .await;
            assert_eq!(replies, expected, "{:?}", String::from_utf8_lossy(&replies));
        };
        let answered = async {
            tokio::select! {
                () = connection.serve() => panic!("the connection has closed"),
                () = events => {}
            }
        };
        tokio::time::timeout(LONG, answered).await.expect("both requests are answered");
    });
}

#[test]
fn a_request_that_cannot_begin_again_is_refused() {
    const WAIT: Duration = Duration::from_millis(300);
    let for_good = refused_after(LONG, |_, source| source.grant().lose());
    assert_eq!(for_good, (ErrorCode::NoCeiling, false));
    let late = refused_after(WAIT, |_, _| std::thread::sleep(WAIT));
    assert_eq!(late, (ErrorCode::NoCeiling, true), "the request waits until its deadline");
    let at_a_stop = refused_after(LONG, |thread, _| thread.refuses_all.set(true));
    assert_eq!(at_a_stop.0, ErrorCode::ShuttingDown);
}

/// Once the client's rate allows the second request, this request must also wait for the source,
/// which has no IDs.
#[test]
fn a_wait_for_the_clients_rate_does_not_count_as_latency() {
    let (thread, _) = thread();
    let settings =
        IdentitySettings { name: String::from(ANONYMOUS), rate: Some(1_000), ..IdentitySettings::default() };
    let identity = Identity::new(&settings, &[SourceSettings::default().name], Vec::new(), 1, None);
    let mut session = Session::new(&Rules::new([(identity, Vec::new())], None, None), 0, None, true);
    let config = thread.live_config.borrow();
    let read_at = os_clock::boot();
    let mut allocate = |count| {
        let request = Request { ask: Ask { count, ..ask(LONG) }, form: (), read_at, size: 0 };
        let state = &mut *thread.turn.borrow_mut();
        Turn::begin(&thread, &config, state, &mut session, thread.now()).allocate(request, || 0)
    };
    let Err(NotYet::Parked(first)) = allocate(1_000) else { panic!("no IDs") };
    assert_eq!(first.timed_from(), read_at, "the rate allows a second's IDs at once");
    let Err(NotYet::Parked(Parked::Timed(second))) = allocate(10) else { panic!("the rate is used up") };
    let allowed_at = second.until;
    assert!(allowed_at > read_at);
    std::thread::sleep(allowed_at.since(os_clock::boot()));
    let resumed = {
        let state = &mut *thread.turn.borrow_mut();
        second.resume(&mut Turn::begin(&thread, &config, state, &mut session, thread.now()))
    };
    let Err(NotYet::Parked(queued)) = resumed else { panic!("no IDs") };
    assert!(matches!(queued, Parked::Queued(_)));
    assert_eq!(queued.timed_from(), allowed_at);
}
