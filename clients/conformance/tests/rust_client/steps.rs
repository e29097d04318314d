//! Plays the steps of a case with the Rust client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use snowbank_client::{Client, ClientOptions, Error, IdsOptions, SharedIds, TlsFiles};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::outcome::{Seen, check};
use crate::program::Program;

/// The pause between two calls of a step that repeats its call.
const PAUSE: Duration = Duration::from_millis(50);

type Outcome = Result<Vec<u64>, Error>;

/// The client under test, and what it has done so far.
pub(crate) struct Player {
    endpoints: Vec<String>,
    options: Value,
    client: Option<Client>,
    ids: Option<SharedIds>,
    calls: HashMap<String, JoinHandle<Outcome>>,
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
fn connect(endpoints: &[String], options: &Value) -> Result<Client, Error> {
    let mut made =
        ClientOptions::new(endpoints).map_err(|error| Error::BadOption(error.to_string().into()))?;
    for (set, name) in [
        (ClientOptions::timeout as fn(_, _) -> _, "timeout_ms"),
        (ClientOptions::connect_timeout, "connect_timeout_ms"),
        (ClientOptions::answer_timeout, "answer_timeout_ms"),
    ] {
        if let Some(limit) = ms(&options[name]) {
            made = set(made, limit);
        }
    }
    if let Some(token) = options["token"].as_str() {
        made = made.token(token);
    }
    let mut files = TlsFiles::new();
    if let Some(ca) = options["ca_file"].as_str() {
        files = files.ca(ca);
    }
    if let (Some(certificate), Some(key)) = (options["cert_file"].as_str(), options["key_file"].as_str()) {
        files = files.certificate(certificate, key);
    }
    let takes_turns = options["take_turns"] == true;
    let prefers_first = options["prefer_first"] == true;
    Client::new(made.tls(files).take_turns(takes_turns).prefer_first(prefers_first))
}

impl Player {
    pub(crate) fn new(case: &Value) -> Self {
        let endpoints = texts(&case["endpoints"]);
        let options = case["options"].clone();
        let client = connect(&endpoints, &options).expect("sound options");
        Self {
            endpoints,
            options,
            client: Some(client),
            ids: None,
            calls: HashMap::new(),
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
                let outcome = self.draw(step["times"].as_u64().unwrap_or(1)).await;
                if step["increasing"] == true {
                    self.continue_from_last(&outcome)?;
                }
                self.settle(step, outcome)?;
            }
            "parallel_next" => self.draw_in_parallel(step).await?,
            "start" => {
                let call = self.batch(step);
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
            "close" => (self.client, self.ids) = (None, None),
            "new" => self.create_another(step)?,
            "life" => {
                program.say(&format!("life {}", step["daemon"]));
                expect_event(program, "life")?;
            }
            "wait_held" => expect_event(program, "held")?,
            "release" => program.say(&format!("release {}", step["daemon"])),
            "sleep" => sleep(ms(&step["ms"]).expect("ms")).await,
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

    /// Fetches a batch with a step's arguments.
    fn batch(&self, step: &Value) -> impl Future<Output = Outcome> + Send + use<> {
        let client = self.client.clone();
        let step = step.clone();
        async move {
            let client = client.ok_or(Error::Closed)?;
            let count = step["count"].as_u64().unwrap_or(1);
            let count = u32::try_from(count)
                .map_err(|_| Error::BadOption(format!("{count} is no count: it has 32 bits").into()))?;
            let mut call = client.batch(count);
            if let Some(source) = step["source"].as_str() {
                call = call.source(source);
            }
            if let Some(limit) = ms(&step["max_wait_ms"]) {
                call = call.max_wait(limit);
            }
            if let Some(limit) = ms(&step["timeout_ms"]) {
                call = call.timeout(limit);
            }
            if step["explicit"] == true {
                call = call.explicit();
            }
            if step["partial"] == true {
                call = call.partial();
            }
            Ok(call.await?.iter().collect())
        }
    }

    fn buffer(&mut self) -> Result<SharedIds, Error> {
        if self.ids.is_none() {
            let mut options = IdsOptions::default();
            if let Some(age) = ms(&self.options["max_age_ms"]) {
                options = options.max_age(age);
            }
            if let Some(count) = self.options["max_batch"].as_u64() {
                options = options.max_batch(count as u32);
            }
            self.ids = Some(self.client.as_ref().ok_or(Error::Closed)?.shared_ids(options)?);
        }
        self.ids.clone().ok_or(Error::Closed)
    }

    async fn draw(&mut self, times: u64) -> Outcome {
        let buffer = self.buffer()?;
        let mut drawn = Vec::new();
        for _ in 0..times {
            drawn.push(buffer.next().await?);
        }
        Ok(drawn)
    }

    async fn draw_in_parallel(&mut self, step: &Value) -> Result<(), String> {
        let buffer = self.buffer().map_err(|error| error.to_string())?;
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

    fn create_another(&self, step: &Value) -> Result<(), String> {
        let endpoints =
            if step["endpoints"].is_null() { self.endpoints.clone() } else { texts(&step["endpoints"]) };
        let mut options = self.options.clone();
        for (name, value) in step["options"].as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        let created = connect(&endpoints, &options).map(|_| Vec::new());
        check(step, &created, &self.endpoints)
    }
}

fn expect_event(program: &mut Program, event: &str) -> Result<(), String> {
    let line = program.line();
    if line["event"] == event { Ok(()) } else { Err(format!("expected the event {event}, found {line}")) }
}
