use std::future::Future;
use std::num::NonZeroUsize;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::watch;

use super::*;
use crate::access::Rules;
use crate::ceiling::Grant;
use crate::clock::{Remembered, Wall};
use crate::config::{self, Overrides};
use crate::front::Facts;
use crate::numbering::TicketCounter;
use crate::server::health::metrics::Metrics;
use crate::server::shard_thread::ticker;
use crate::server::shared::common::Common;
use crate::server::shared::live_config::Supply;
use crate::shard::{Order, Shard};
use snowbank_client::layout::Position;

/// The thread of a shard of one ticket counter whose ceiling is 0.
fn thread() -> (Rc<ThreadState>, Arc<Source>) {
    let file = (Path::new("snowbank.toml"), "[[sources]]\nname = \"orders\"\nkind = \"ticket\"\n");
    let reading = clock::os::read();
    let settings = config::load(Some(file), &Overrides::default(), NonZeroUsize::MIN, reading.wall);
    let settings = settings.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let wall = Arc::new(Wall::new(settings.clock.step_rule(), reading, Remembered::Nothing));
    let now = wall.believe(reading);
    let counter = TicketCounter::new("orders", 1, 1).expect("a counter");
    let (name, rules) = (String::from("orders"), crate::source::Rules::OF_TICKETS);
    let grant = Grant::new(Position(0));
    let source = Arc::new(Source::new(name, counter.into(), rules, grant, Position(0), now));
    let supply = Supply::new(Arc::clone(&source), 1);
    let shard = Shard::new(0, vec![supply.lane(0, Order::Relaxed, now)], 1, now);
    let facts = Facts::new(&settings, Vec::new(), Rules::default());
    let (_, live_config) = watch::channel(Arc::new(LiveConfig::new(0, &settings, facts, None, vec![supply])));
    let metrics = Metrics::new(1, Vec::new(), String::from("test"), reading);
    let common = Common::new(live_config, wall, Order::Relaxed, None, metrics);
    (Rc::new(ThreadState::new(Arc::new(common), shard, 1)), source)
}

fn ready<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_request_whose_ids_are_lost_with_the_grant_begins_again() {
    let (thread, source) = thread();
    let session = Session::new((&Rules::default(), 0), None, None, clock::os::boot());
    let ask = Ask { source: 0, count: 10, wait: Some(Duration::from_secs(60)), partial: false };
    let mut drawn = pin!(draw(&thread, &session, Protocol::Resp, ask));
    assert!(ready(drawn.as_mut()).is_none(), "it waits for the ceiling");
    source.grant().raise(Position(15));
    ticker::advance(&thread);
    source.grant().revoke();
    assert!(ready(drawn.as_mut()).is_none(), "it waits for the ceiling again");
    source.grant().raise(Position(25));
    ticker::advance(&thread);
    source.grant().revoke();
    source.grant().raise(Position(40));
    let runs = ready(drawn.as_mut()).expect("there is no need to wait").expect("it is not refused");
    assert_eq!(runs, [Run { first: 21, count: 10, stride: 1 }], "the IDs of two grants are skipped");
    assert!(thread.turn.borrow().waiters.is_empty());
}

#[test]
fn a_request_whose_ids_are_lost_for_good_is_refused() {
    let (thread, source) = thread();
    let session = Session::new((&Rules::default(), 0), None, None, clock::os::boot());
    let ask = Ask { source: 0, count: 10, wait: Some(Duration::from_secs(60)), partial: false };
    let mut drawn = pin!(draw(&thread, &session, Protocol::Resp, ask));
    assert!(ready(drawn.as_mut()).is_none(), "it waits for the ceiling");
    source.grant().raise(Position(15));
    ticker::advance(&thread);
    source.grant().lose();
    let words = ready(drawn.as_mut()).expect("a wait is of no use").expect_err("they are lost");
    assert_eq!((words.code, words.retry_after), (ErrorCode::NoCeiling, None));
}
