//! A wall clock that tests can set. Daemons read this clock through libfaketime, which is preloaded
//! into the shipped program. The boot clock and the monotonic clock stay right, as on a real
//! machine whose wall clock is set.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Setup;
use super::ids::unix_ms;

/// Returns the path of the library. Calls [`skip`](super::skip) if it is not installed.
fn library() -> Option<PathBuf> {
    const NAME: &str = "faketime/libfaketimeMT.so.1";
    let is_there = |directory: &Path| Some(directory.join(NAME)).filter(|path| path.exists());
    let directories = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = is_there(Path::new("/usr/lib"))
        .or_else(|| directories.map(|entry| entry.path()).find_map(|path| is_there(&path)));
    if found.is_none() {
        super::skip("libfaketime is missing: install the package faketime (tests/run does it)");
    }
    found
}

/// A change of the clock, which happened between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Until this moment the clock showed its earlier time.
    pub before: Instant,
    /// From this moment on the clock shows the new time.
    pub after: Instant,
}

/// The wall clock of all daemons that use it.
pub struct FakeClock {
    library: PathBuf,
    file: PathBuf,
    offset_ms: Mutex<i64>,
}

impl FakeClock {
    /// Makes a clock that is right until a test sets it. A file in this directory controls the
    /// clock. Returns `None` if the test cannot run here.
    pub fn new(directory: &Path) -> Option<FakeClock> {
        let clock =
            FakeClock { library: library()?, file: directory.join("clock"), offset_ms: Mutex::new(0) };
        clock.set(0);
        Some(clock)
    }

    /// Makes a daemon use this clock.
    pub fn under(&self, setup: Setup) -> Setup {
        setup
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_NO_CACHE", "1")
            // The library reads the instant of a stopped clock as local time.
            .env("TZ", "UTC")
    }

    /// Sets the clock this far ahead of the right time.
    pub fn set(&self, offset_ms: i64) -> Step {
        *self.offset_ms.lock().expect("no holder panics") = offset_ms;
        let sign = if offset_ms < 0 { '-' } else { '+' };
        let seconds = offset_ms.unsigned_abs() / 1_000;
        let ms = offset_ms.unsigned_abs() % 1_000;
        self.write(&format!("{sign}{seconds}.{ms:03}\n"))
    }

    /// Moves the clock by this much.
    pub fn step(&self, by_ms: i64) -> Step {
        self.set(self.offset_ms() + by_ms)
    }

    /// Stops the clock at the start of its next second, because the library can only stop it at
    /// whole seconds. Returns the step, and the time at which the clock then stands, in Unix ms.
    pub fn stop(&self) -> (Step, f64) {
        /// The test stops the clock this long before that second, so that a short delay makes no
        /// step back.
        const EARLY_MS: i64 = 20;
        let now_ms = unix_ms() as i64 + self.offset_ms() + EARLY_MS;
        let second = now_ms.div_euclid(1_000) + 1;
        std::thread::sleep(Duration::from_millis((second * 1_000 - now_ms) as u64));
        let stands = jiff::Timestamp::from_second(second).expect("a second of this age");
        let step = self.write(&format!("{}\n", stands.strftime("%Y-%m-%d %H:%M:%S")));
        (step, second as f64 * 1e3)
    }

    /// Returns how far the clock is ahead of the right time.
    pub fn offset_ms(&self) -> i64 {
        *self.offset_ms.lock().expect("no holder panics")
    }

    fn write(&self, text: &str) -> Step {
        let unfinished = self.file.with_extension("new");
        std::fs::write(&unfinished, text).expect("the time is written");
        let before = Instant::now();
        // The rename replaces the file in one step, so that no reader finds half of the text.
        std::fs::rename(&unfinished, &self.file).expect("the clock is set");
        Step { before, after: Instant::now() }
    }
}

/// Returns the right time at a moment, in Unix ms. All moments are on one scale, because `Instant`
/// and the system's clock are read together only once.
pub fn true_unix_ms(moment: Instant) -> f64 {
    static ORIGIN: std::sync::LazyLock<(Instant, f64)> = std::sync::LazyLock::new(|| {
        let tightest = (0..100).map(|_| {
            let before = Instant::now();
            let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            (before.elapsed(), before, unix.unwrap_or(Duration::ZERO))
        });
        let (_, moment, unix) = tightest.min_by_key(|(torn, _, _)| *torn).expect("a hundred readings");
        (moment, unix.as_secs_f64() * 1e3)
    });
    let (origin, unix_ms) = *ORIGIN;
    unix_ms + ms_between(origin, moment)
}

/// Returns the time from one moment to another, in ms; negative if `to` is earlier than `from`.
pub fn ms_between(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(later) => later.as_secs_f64() * 1e3,
        None => -(from.duration_since(to).as_secs_f64() * 1e3),
    }
}
