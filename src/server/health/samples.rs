//! The samples: the daemon's status as one list of figures with labels and values, taken once.
//! `/metrics` prints it, `/status` is it as JSON, and the findings are made from it.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::figures::{Figure, Group};
use super::latency::Latency;

/// A figure's value.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) figure: Figure,
    /// The values of the labels, without the name of the subject.
    pub(crate) labels: Vec<String>,
    pub(crate) value: Value,
}

/// The samples about the daemon, a source or whatever the group is.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) group: Group,
    /// The name. Empty: the daemon.
    pub(crate) name: String,
    /// The index of a source's counters, which it keeps under another name. 0 for other subjects.
    pub(crate) index: usize,
    pub(crate) samples: Vec<Sample>,
}

impl Subject {
    pub(crate) fn new(group: Group, name: &str) -> Self {
        Subject { group, name: name.to_owned(), index: 0, samples: Vec::new() }
    }

    /// Returns what tells the subject from all others, also after a reload.
    fn key(&self) -> (Group, usize, &str) {
        (self.group, self.index, if self.group == Group::Source { "" } else { &self.name })
    }

    pub(crate) fn put(&mut self, figure: Figure, value: impl Into<Value>) -> &mut Self {
        self.put_labelled(figure, Vec::new(), value)
    }

    pub(crate) fn put_labelled(
        &mut self,
        figure: Figure,
        labels: Vec<String>,
        value: impl Into<Value>,
    ) -> &mut Self {
        debug_assert_eq!(figure.row().group, self.group, "{figure:?}");
        self.samples.push(Sample { figure, labels, value: value.into() });
        self
    }

    fn value(&self, figure: Figure) -> &Value {
        let found = self.samples.iter().find(|sample| sample.figure == figure);
        found.map_or(&Value::Null, |sample| &sample.value)
    }

    /// Returns a whole number, also of a text; 0 if it is absent.
    pub(crate) fn count(&self, figure: Figure) -> u64 {
        let value = self.value(figure);
        value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
    }

    /// Returns a number; 0 if it is absent.
    pub(crate) fn measure(&self, figure: Figure) -> f64 {
        self.measured(figure).unwrap_or(0.0)
    }

    pub(crate) fn measured(&self, figure: Figure) -> Option<f64> {
        self.value(figure).as_f64()
    }

    pub(crate) fn text(&self, figure: Figure) -> Option<&str> {
        self.value(figure).as_str()
    }

    /// Returns a list of texts, with commas between them.
    pub(crate) fn texts(&self, figure: Figure) -> String {
        let texts = self.value(figure).as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn is(&self, figure: Figure) -> bool {
        self.value(figure).as_bool().unwrap_or(false)
    }

    /// Returns the counts of a figure, each with the value of its last label.
    pub(crate) fn counts(&self, figure: Figure) -> impl Iterator<Item = (&str, u64)> {
        let samples = self.samples.iter().filter(move |sample| sample.figure == figure);
        samples.filter_map(|sample| Some((sample.labels.last()?.as_str(), sample.value.as_u64()?)))
    }

    pub(crate) fn latency(&self) -> Latency {
        Latency::read(self.value(Figure::Durations))
    }

    /// Returns whether the source is a ticket counter.
    pub(crate) fn is_ticket(&self) -> bool {
        self.text(Figure::Kind) == Some("ticket")
    }

    /// Returns true if no IDs of the source are left below the ceiling.
    pub(crate) fn is_ceiling_reached(&self) -> bool {
        let left = if self.is_ticket() { Figure::TicketReserved } else { Figure::HeadroomS };
        self.measure(left) <= 0.0
    }

    fn json(&self) -> Value {
        let mut json = match self.group {
            Group::Daemon => json!({ "fleet": null, "certificate": null, "last_reload": null }),
            Group::Protocol | Group::Source => json!({ "name": self.name }),
            Group::Identity => json!({ "name": self.name, "ids": {} }),
            Group::Pool => json!({ "source": self.name }),
        };
        for Sample { figure, labels, value } in &self.samples {
            let place = figure.row().place;
            if place.is_empty() {
                continue;
            }
            // The value of a label may have points.
            let keys = place.split('.').map(|key| match labels.last() {
                Some(label) => key.replace('*', label),
                None => key.to_owned(),
            });
            *keys.fold(&mut json, |place, key| &mut place[key]) = value.clone();
        }
        json
    }
}

/// The samples of a moment, or the differences between two moments. Counters count from the
/// daemon's start.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) daemon: Subject,
    /// The protocols that have listeners, and the sources in the order of the file. Then the
    /// identities in the order of their names, and the sources whose worker IDs were counted.
    pub(crate) others: Vec<Subject>,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { daemon: Subject::new(Group::Daemon, ""), others: Vec::new() }
    }
}

impl Samples {
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        std::iter::once(&self.daemon).chain(&self.others)
    }

    /// Returns the subjects of a group.
    pub(crate) fn of(&self, group: Group) -> impl Iterator<Item = &Subject> {
        self.others.iter().filter(move |subject| subject.group == group)
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = &Subject> {
        self.of(Group::Source)
    }

    /// Returns the sum of a figure over the subjects of its group.
    pub(crate) fn sum(&self, figure: Figure) -> u64 {
        self.of(figure.row().group).map(|subject| subject.count(figure)).sum()
    }

    /// Returns the time of the samples in Unix time, by the clocks of the daemon's start.
    pub(crate) fn now_s(&self) -> f64 {
        self.daemon.measure(Figure::Started) + self.daemon.measure(Figure::UptimeS)
    }

    /// Returns only the figures that grow, as differences from an earlier moment. All subjects are
    /// in their order. A count that is lower than before began at 0 in between.
    pub(crate) fn since(&self, then: &Samples) -> Samples {
        let then: HashMap<_, _> = then.subjects().map(|of| (of.key(), of)).collect();
        let difference = |now: &Subject| {
            let then = then.get(&now.key());
            let mut grown = Subject { index: now.index, ..Subject::new(now.group, &now.name) };
            for sample in now.samples.iter().filter(|sample| sample.figure.grows()) {
                let Sample { figure, labels, value } = sample;
                let is_same = |then: &&Sample| then.figure == *figure && then.labels == *labels;
                let then = then.and_then(|then| then.samples.iter().find(is_same));
                let value = match then {
                    Some(then) => difference(*figure, value, &then.value),
                    None => value.clone(),
                };
                grown.put_labelled(*figure, labels.clone(), value);
            }
            grown
        };
        Samples { daemon: difference(&self.daemon), others: self.others.iter().map(difference).collect() }
    }

    /// Returns the samples as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut json = self.daemon.json();
        let all = |group| Value::from_iter(self.of(group).map(Subject::json));
        json["protocols"] = all(Group::Protocol);
        json["sources"] = all(Group::Source);
        json["identities"] = all(Group::Identity);
        if json["fleet"].is_object() {
            json["fleet"]["pools"] = all(Group::Pool);
        }
        json
    }
}

/// Returns by how much a figure has grown.
fn difference(figure: Figure, now: &Value, then: &Value) -> Value {
    if figure == Figure::Durations {
        return Latency::read(now).since(&Latency::read(then)).value();
    }
    match (now.as_u64(), then.as_u64()) {
        (Some(now), Some(then)) => now.checked_sub(then).unwrap_or(now).into(),
        _ => (now.as_f64().unwrap_or(0.0) - then.as_f64().unwrap_or(0.0)).into(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Figure::*;
    use super::*;

    impl Subject {
        /// Replaces a value.
        pub(crate) fn set(&mut self, figure: Figure, value: impl Into<Value>) -> &mut Self {
            self.samples.retain(|sample| sample.figure != figure);
            self.put(figure, value)
        }

        /// Adds to a count.
        pub(crate) fn add(&mut self, figure: Figure, more: u64) -> &mut Self {
            self.set(figure, self.count(figure) + more)
        }
    }

    impl Samples {
        pub(crate) fn first_source(&mut self) -> &mut Subject {
            self.others.iter_mut().find(|of| of.group == Group::Source).expect("a source")
        }
    }

    /// Returns the samples of a healthy daemon with one source.
    pub(crate) fn healthy() -> Samples {
        let mut samples = Samples::default();
        samples
            .daemon
            .put(Started, 1_800_000_000.0)
            .put(UptimeS, 60.0)
            .put(SlowestRaiseS, 0.002)
            .put(UsualRaiseS, 0.002)
            .put(HorizonS, 3.0)
            .put(ClockState, "steady")
            .put(Open, 1)
            .put(OpenMax, 10)
            .put(QueuedBytesMax, 100);
        let mut source = Subject::new(Group::Source, "orders");
        source
            .put(Kind, "snowflake")
            .put(HeadroomS, 2.5)
            .put(LayoutYearsLeft, 54.0)
            .put(WaitQueueS, 0.0)
            .put(SourceIds, 10)
            .put(SourceRequests, 1)
            .put(DefaultWaitS, 1.0);
        samples.others.push(source);
        samples
    }

    /// Returns the samples of a healthy daemon with other values of these figures.
    pub(crate) fn healthy_but(figures: impl IntoIterator<Item = (Figure, Value)>) -> Samples {
        let mut samples = healthy();
        for (figure, value) in figures {
            match figure.row().group {
                Group::Daemon => samples.daemon.set(figure, value),
                _ => samples.first_source().set(figure, value),
            };
        }
        samples
    }

    #[test]
    fn each_sample_has_its_place_in_json() {
        let mut samples = healthy();
        let mut identity = Subject::new(Group::Identity, "web");
        identity.put_labelled(IdentityIds, vec![String::from("a.b")], 7);
        samples.others.push(identity);
        samples.daemon.put(FleetLeftS, 2.5).put_labelled(ClockSteps, vec![String::from("back")], 3);
        samples.daemon.put(IsFailing, true);
        let json = samples.json();
        assert_eq!((&json["connections"]["open"], &json["sources"][0]["ids"]), (&json!(1), &json!(10)));
        assert_eq!(json["identities"], json!([{ "name": "web", "ids": { "a.b": 7 } }]));
        assert_eq!(json["fleet"], json!({ "left_s": 2.5, "pools": [] }));
        assert_eq!(json["clock"], json!({ "state": "steady", "steps_back": 3 }));
        assert_eq!((&json["certificate"], json.get("")), (&Value::Null, None));
    }

    #[test]
    fn differences_are_of_figures_that_grow() {
        let then = healthy();
        let mut now = healthy();
        now.daemon.set(UptimeS, 90.0).set(Open, 5);
        now.first_source().add(SourceIds, 40).set(SourceRequests, 0);
        let since = now.since(&then);
        assert_eq!((since.daemon.measure(UptimeS), since.daemon.count(Open)), (30.0, 0));
        assert_eq!((since.sum(SourceIds), since.sum(SourceRequests)), (40, 0));
        now.first_source().name = String::from("renamed");
        assert_eq!(now.since(&then).sum(SourceIds), 40, "a reload gave the source another name");
        now.first_source().set(SourceIds, 3);
        assert_eq!(now.since(&then).sum(SourceIds), 3, "another source that has the counters since");
        assert_eq!(now.since(&Samples::default()).sum(SourceIds), 3);
    }
}
