use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use super::*;
use crate::ceiling::Grant;
use crate::clock::{self, BootMicros, Now, Remembered, Wall};
use crate::config::{self, Overrides};
use crate::numbering::Numbering;
use crate::server::health::metrics::Metrics;
use crate::shard::Order;
use crate::source::{OnStepBack, Rules, SequenceStart, Source};
use snowbank_client::layout::{Position, UnixMicros};

const NOW: Now =
    Now { wall: UnixMicros(1_800_000_000_000_000), boot: BootMicros(500_000_000), jumped: false };

fn settings(lock_dir: &Path, names: &[&str]) -> Settings {
    let source = |(worker, name): (usize, &&str)| match *name {
        "counter" => String::from("[[sources]]\nname = \"counter\"\nkind = \"ticket\"\n"),
        name => format!("[[sources]]\nname = {name:?}\nworker_ids = {worker}\n"),
    };
    let sources: String = names.iter().enumerate().map(source).collect();
    let text = format!("lock_dir = {:?}\n{sources}", lock_dir.display());
    let file = Some((Path::new("snowbank.toml"), text.as_str()));
    let settings = config::load(file, &Overrides::default(), NonZeroUsize::MIN, NOW.wall);
    settings.unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn granted(name: &str, numbering: Numbering) -> Arc<Source> {
    let rules = Rules {
        burst_window: Duration::from_millis(10),
        max_ahead: Duration::from_secs(10),
        on_step_back: OnStepBack::Ride,
        sequence_start: SequenceStart::Zero,
    };
    let grant = Grant::new(numbering.end());
    Arc::new(Source::new(name.to_owned(), numbering, rules, grant, Position(0), NOW))
}

/// A reload that adds a source, to a daemon without shards. `meanwhile` is called once the new source has its
/// first ceiling.
fn add(name: &str, meanwhile: impl FnOnce(&LiveConfig, &Common) + Send) -> Arc<Source> {
    let locks = tempfile::tempdir().expect("a directory");
    let before = settings(locks.path(), &["first"]);
    let first = granted("first", number(&before.sources[0]).expect("it exists"));
    let facts = Facts::new(&before, Vec::new(), crate::access::Rules::default());
    let (limits, supplies) = (before.limits.clone(), vec![Supply::new(first, 0)]);
    let (live_config, watched) =
        watch::channel(Arc::new(LiveConfig { version: 0, facts, limits, supplies, text: String::new() }));
    let (send_requests, join_requests) = mpsc::sync_channel::<JoinRequest>(1);
    let reading = clock::os::read();
    let wall = Arc::new(Wall::new(before.clock.step_rule(), reading, Remembered::Nothing));
    let metrics = Metrics::new(0, Vec::new(), String::from("test"), reading);
    let common = Common::new(watched.clone(), wall, Order::Relaxed, None, metrics);
    let common = Arc::new(common);
    let keepers_common = Arc::clone(&common);
    let mut reloader = Reloader {
        settings: before,
        owner: None,
        common,
        live_config,
        adopted: mpsc::channel().1,
        join_requests: send_requests,
        fleet_files: Vec::new(),
    };
    thread::scope(|threads| {
        let keepers_view = watched.clone();
        threads.spawn(move || {
            let JoinRequest { joining, reply, .. } = join_requests.recv().expect("one is sent");
            let join = |new: Joining| granted(&new.settings.name, new.numbering);
            let sources = joining.into_iter().map(join).collect();
            meanwhile(&keepers_view.borrow(), &keepers_common);
            reply.send(Ok(Joined { sources, notes: Vec::new() })).expect("it is waited for");
        });
        let secrets = Secrets::default();
        reloader.reload(settings(locks.path(), &["first", name]), secrets).expect("a source may be added");
    });
    Arc::clone(&watched.borrow().supplies[1].source)
}

#[test]
fn what_a_restored_machine_loses_a_source_that_is_joining_loses_too() {
    for name in ["second", "counter"] {
        assert_ne!(add(name, |_, _| {}).grant().ceiling(), Position(0));
        // A jump of the clocks, after which a counter counts on.
        let jumped = add(name, |live_config, _| live_config.source(0).grant().revoke());
        assert_eq!(jumped.grant().ceiling(), Position(0), "until the keeper has made it durable again");
        assert!(!jumped.grant().is_lost(), "{name}");
        let restored = add(name, |_, common| _ = common.restorations.fetch_add(1, Ordering::Relaxed));
        assert_eq!(restored.grant().ceiling(), Position(0));
        assert_eq!(restored.grant().is_lost(), name == "counter");
    }
}
