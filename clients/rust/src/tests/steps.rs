//! Plays the steps of a case with the Rust client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::outcome::{Seen, check, named};
use super::program::Program;
use crate::{Client, ClientOptions, Error, Event, SharedIds};

/// The pause between two calls of a step that repeats its call.
const PAUSE: Duration = Duration::from_millis(50);

type Outcome = Result<Vec<u64>, Error>;

/// The names of a client's events so far.
type Events = Arc<Mutex<Vec<&'static str>>>;

/// The client under test, and what it has done so far.
pub(crate) struct Player {
    endpoints: Vec<String>,
    options: Value,
    client: Option<Client>,
    ids: Option<SharedIds>,
    calls: HashMap<String, JoinHandle<Outcome>>,
    events: Events,
    seen: Arc<Seen>,
    /// The last ID that a step with `increasing` has drawn.
    last: u64,
}

fn ms(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

/// Returns the texts of an array.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| item.as_str().expect("a text").to_owned()).collect()
}

/// Creates a client with these options.
fn connect(endpoints: &[String], options: &Value, events: &Events) -> Result<Client, Error> {
    let mut made = ClientOptions::new(endpoints)?;
    made = made.timeout(ms(&options["timeout_ms"]).expect("timeout_ms"));
    let limit = |name: &str| ms(&options["limits"][name]).expect("a limit");
    made.limits.connect = limit("connect_ms");
    made.limits.accept = limit("connect_ms");
    made.limits.answer = limit("answer_ms");
    made.limits.first_round = limit("first_round_ms");
    made.limits.round = limit("round_ms");
    if let Some(token) = options["token"].as_str() {
        made = made.token(token);
    }
    if let Some(file) = options["token_file"].as_str() {
        made = made.token_file(file);
    }
    if let Some(name) = options["source"].as_str() {
        made = made.source(name);
    }
    #[cfg(feature = "tls")]
    let made = made.tls(files(options));
    let (events, on_event) = (events.clone(), options["on_event"].clone());
    let closing = Arc::new(Mutex::new(None::<Client>));
    let closed = closing.clone();
    let report = move |event: &Event| {
        let name = match event {
            Event::Connected { .. } => "connected",
            Event::Failed { .. } => "failed",
            Event::Refused(_) => "refused",
            Event::Collision(_) => "collision",
            Event::CollisionOver(_) => "collision_over",
        };
        events.lock().expect("no panic").push(name);
        if let Some(client) = &*closed.lock().expect("no panic") {
            client.close();
        }
        assert_ne!(on_event, "fails", "an event that fails");
    };
    let made = made.take_turns(options["take_turns"] == true).prefer_first(options["prefer_first"] == true);
    let client = Client::new(made.on_event(report))?;
    if options["on_event"] == "closes" {
        *closing.lock().expect("no panic") = Some(client.clone());
    }
    Ok(client)
}

/// Returns the files for TLS.
#[cfg(feature = "tls")]
fn files(options: &Value) -> crate::TlsFiles {
    let mut files = crate::TlsFiles::new();
    if let Some(ca) = options["ca_file"].as_str() {
        files = files.ca(ca);
    }
    if let (Some(certificate), Some(key)) = (options["cert_file"].as_str(), options["key_file"].as_str()) {
        files = files.certificate(certificate, key);
    }
    if let Some(name) = options["server_name"].as_str() {
        files = files.server_name(name);
    }
    files
}

impl Player {
    pub(crate) fn new(case: &Value) -> Self {
        let endpoints = texts(&case["endpoints"]);
        let options = case["options"].clone();
        let events = Events::default();
        let client = connect(&endpoints, &options, &events).expect("sound options");
        Self {
            endpoints,
            options,
            client: Some(client),
            ids: None,
            calls: HashMap::new(),
            events,
            seen: Arc::default(),
            last: 0,
        }
    }

    /// Does one step. The error says how the outcome differs from the case.
    pub(crate) async fn play(&mut self, step: &Value, program: &mut Program) -> Result<(), String> {
        let name = || step["as"].as_str().expect("a name").to_owned();
        let began = Instant::now();
        match step["do"].as_str().expect("do") {
            "batch" => {
                let outcome = self.batch(step).await;
                self.settle(step, outcome)?;
            }
            "next" => {
                let outcome = self.draw(step).await;
                if step["increasing"] == true {
                    self.continue_from_last(&outcome)?;
                }
                self.settle(step, outcome)?;
            }
            "ping" => {
                let outcome = self.client(step).expect("a client").ping().await;
                check(step, &outcome.map(|_| Vec::new()), &self.endpoints)?;
            }
            "parallel_next" => self.draw_in_parallel(step).await?,
            "start" => {
                let call = self.begin(step);
                self.calls.insert(name(), tokio::spawn(call));
            }
            "join" => {
                let outcome = self.calls.remove(&name()).expect("a call").await.expect("no panic");
                self.settle(step, outcome)?;
            }
            "cancel" => self.calls.remove(&name()).expect("a call").abort(),
            "until" => self.repeat_until(step).await?,
            "keep" => {
                let lasts = ms(&step["for_ms"]).expect("for_ms");
                while began.elapsed() < lasts {
                    let outcome = self.batch(step).await;
                    self.settle(step, outcome)?;
                    sleep(PAUSE).await;
                }
            }
            "close" => self.close(step).await,
            "drop" => (self.client, self.ids) = (None, None),
            "new" => self.create_others(step).await?,
            "life" => {
                program.say(&format!("life {}", step["daemon"]));
                program.wait_for("life").await?;
            }
            "idle" => {
                program.say(&format!("idle {}", step["daemon"]));
                program.wait_for("idle").await?;
            }
            "stop" => {
                program.say(&format!("stop {}", step["ms"]));
                program.wait_for("stopped").await?;
            }
            "wait_held" => program.wait_for("held").await?,
            "release" => program.say(&format!("release {}", step["daemon"])),
            "sleep" => sleep(ms(&step["ms"]).expect("ms")).await,
            "block" => std::thread::sleep(ms(&step["ms"]).expect("ms")),
            "stats" => self.check_stats(step)?,
            "events" => self.check_events(step).await?,
            other => return Err(format!("this test does not know the step {other}")),
        }
        match ms(&step["within_ms"]) {
            Some(limit) if began.elapsed() > limit => Err(format!("the step took {:?}", began.elapsed())),
            _ => Ok(()),
        }
    }

    fn settle(&self, step: &Value, outcome: Outcome) -> Result<(), String> {
        check(step, &outcome, &self.endpoints)?;
        self.seen.add(&outcome.unwrap_or_default())
    }

    /// Checks that the IDs are above those of earlier steps with `increasing`.
    fn continue_from_last(&mut self, outcome: &Outcome) -> Result<(), String> {
        let Ok(ids) = outcome else { return Ok(()) };
        if let Some(low) = ids.first().filter(|first| **first <= self.last) {
            return Err(format!("{low} came after {}", self.last));
        }
        self.last = ids.last().copied().unwrap_or(self.last);
        Ok(())
    }

    /// Returns the client, with a step's timeout.
    fn client(&self, step: &Value) -> Option<Client> {
        let client = self.client.as_ref()?;
        Some(ms(&step["timeout_ms"]).map_or_else(|| client.clone(), |timeout| client.timeout(timeout)))
    }

    /// Fetches a batch with a step's arguments.
    fn batch(&self, step: &Value) -> impl Future<Output = Outcome> + Send + use<> {
        let client = self.client(step);
        let count = step["count"].as_u64().unwrap_or(1);
        async move {
            let count = u32::try_from(count)
                .map_err(|_| Error::BadOption(format!("{count} is no count: it has 32 bits").into()))?;
            client.ok_or(Error::Closed)?.batch(count).await
        }
    }

    /// Begins a call in the background.
    fn begin(&mut self, step: &Value) -> impl Future<Output = Outcome> + Send + use<> {
        let buffer = step["count"].is_null().then(|| self.buffer(step));
        let batch = self.batch(step);
        async move {
            match buffer {
                Some(buffer) => Ok(vec![buffer.next().await?]),
                None => batch.await,
            }
        }
    }

    fn buffer(&mut self, step: &Value) -> SharedIds {
        let client = self.client.as_ref().expect("a client");
        let buffer = self.ids.get_or_insert_with(|| client.shared_ids());
        ms(&step["timeout_ms"]).map_or_else(|| buffer.clone(), |timeout| buffer.timeout(timeout))
    }

    async fn draw(&mut self, step: &Value) -> Outcome {
        let buffer = self.buffer(step);
        let mut drawn = Vec::new();
        for _ in 0..step["times"].as_u64().unwrap_or(1) {
            drawn.push(buffer.next().await?);
        }
        Ok(drawn)
    }

    async fn draw_in_parallel(&mut self, step: &Value) -> Result<(), String> {
        let buffer = self.buffer(step);
        let count = step["count"].as_u64().expect("count");
        let mut threads = Vec::new();
        for _ in 0..step["threads"].as_u64().expect("threads") {
            let buffer = buffer.clone();
            threads.push(tokio::spawn(async move {
                let mut drawn = Vec::new();
                for _ in 0..count {
                    drawn.push(buffer.next().await?);
                }
                Ok(drawn)
            }));
        }
        for thread in threads {
            self.settle(step, thread.await.expect("no panic"))?;
        }
        Ok(())
    }

    async fn repeat_until(&mut self, step: &Value) -> Result<(), String> {
        // The default is shorter than the time that the program allows for a case.
        let limit = ms(&step["within_ms"]).unwrap_or(Duration::from_secs(20));
        let began = Instant::now();
        loop {
            let outcome = self.batch(step).await;
            let drawn = outcome.clone().unwrap_or_default();
            let checked = check(step, &outcome, &self.endpoints);
            self.seen.add(&drawn)?;
            if checked.is_ok() || began.elapsed() > limit {
                return checked;
            }
            sleep(PAUSE).await;
        }
    }

    async fn create_others(&self, step: &Value) -> Result<(), String> {
        let endpoints =
            if step["endpoints"].is_null() { self.endpoints.clone() } else { texts(&step["endpoints"]) };
        let mut options = self.options.clone();
        for (name, value) in step["options"].as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        for _ in 0..step["times"].as_u64().unwrap_or(1) {
            let outcome = match connect(&endpoints, &options, &Events::default()) {
                Ok(client) if !step["count"].is_null() => client.batch(1).await,
                Ok(_) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            self.settle(step, outcome)?;
        }
        Ok(())
    }

    async fn close(&mut self, step: &Value) {
        let client = self.client.clone().expect("a client");
        let Some(time) = ms(&step["timeout_ms"]) else { return client.close() };
        let closing = async move {
            client.close_within(time).await;
            Ok(Vec::new())
        };
        match step["as"].as_str() {
            Some(name) => drop(self.calls.insert(name.to_owned(), tokio::spawn(closing))),
            None => drop(closing.await),
        }
    }

    fn check_stats(&self, step: &Value) -> Result<(), String> {
        let stats = self.client.as_ref().expect("a client").stats();
        for (name, found) in [
            ("calls", stats.calls),
            ("retries", stats.retries),
            ("refusals", stats.refusals),
            ("failures", stats.failures),
            ("ids", stats.ids),
        ] {
            if step[name].as_u64().is_some_and(|wanted| wanted != found) {
                return Err(format!("expected {name} {}, found {stats:?}", step[name]));
            }
        }
        let wanted = step["endpoint"].as_str().map(|text| named(text, &self.endpoints));
        match wanted {
            Some(wanted) if stats.endpoint.as_deref().unwrap_or_default() != wanted => {
                Err(format!("found {stats:?}"))
            }
            _ => Ok(()),
        }
    }

    async fn check_events(&self, step: &Value) -> Result<(), String> {
        // They come by a thread of their own.
        for _ in 0..1_000 {
            let found = self.events.lock().expect("no panic").clone();
            let has = |name: &String| found.contains(&name.as_str());
            if texts(&step["has_not"]).iter().any(has) {
                break;
            }
            if texts(&step["has"]).iter().all(has) {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err(format!("found the events {:?}", self.events.lock().expect("no panic")))
    }
}
