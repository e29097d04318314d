//! Rates of tenants. Tenants on all shards share an identity, and a reload may change its rate.
//! Connections take up the reload one after another. At no time have they drawn more than their
//! rates have yielded by then plus a burst of one second's IDs.

use std::time::Duration;

use snowbank::access::{Identity, Permit, Rules, Session};
use snowbank::clock::BootMicros;
use snowbank::config::{ANONYMOUS, IdentitySettings};

/// An identity with a rate.
pub(crate) struct Limited {
    rules: Rules,
    version: u64,
    per_second: u32,
    began: BootMicros,
    /// For each draw: its time, and the seconds in which its reservation's rate yields as many IDs.
    drawn: Vec<(BootMicros, f64)>,
    /// What rounding may add at changes of the rate: the time in which each rate yields one ID.
    rounded_s: f64,
}

/// The IDs that a request may draw.
pub(crate) struct Held {
    permit: Permit,
    per_second: u32,
}

impl Held {
    /// Returns the time from which the request may draw the IDs.
    pub(crate) fn at(&self) -> BootMicros {
        self.permit.at
    }

    /// Gives the IDs back.
    pub(crate) fn give_back(mut self, now: BootMicros) {
        self.permit.settle(0, now);
    }
}

impl Limited {
    pub(crate) fn new(per_second: u32, now: BootMicros) -> Limited {
        let rules = rules(per_second, &Rules::default());
        Limited { rules, version: 0, per_second, began: now, drawn: Vec::new(), rounded_s: 0.0 }
    }

    pub(crate) fn connect(&self) -> Session {
        Session::new(&self.rules, self.version, None, true)
    }

    /// Reloads another rate.
    pub(crate) fn change(&mut self, per_second: u32, now: BootMicros) {
        let before = std::mem::take(&mut self.rules);
        self.rules = rules(per_second, &before);
        self.rules.apply_rates(now);
        self.rounded_s += 1.0 / f64::from(per_second) + 1.0 / f64::from(self.per_second);
        (self.version, self.per_second) = (self.version + 1, per_second);
    }

    /// Lets a connection take up the last reload.
    pub(crate) fn renew(&self, session: &mut Session) {
        session.renew(&self.rules, self.version, None).expect("it has no token");
    }

    /// Reserves IDs for a request. Returns `None` if the request is refused.
    pub(crate) fn reserve(
        &self,
        session: &Session,
        now: BootMicros,
        due: BootMicros,
        count: u64,
    ) -> Option<Held> {
        let permit = session.reserve(now, due, count, false).ok()?;
        assert!(permit.count == count && permit.at >= now && permit.at <= due);
        Some(Held { permit, per_second: self.per_second })
    }

    /// Notes that a request has drawn all its IDs.
    pub(crate) fn note_drawn(&mut self, held: &Held, now: BootMicros) {
        assert!(held.permit.at <= now);
        self.drawn.push((now, held.permit.count as f64 / f64::from(held.per_second)));
    }

    /// Returns an error if more was drawn than the rates yield.
    pub(crate) fn check(&self) -> Result<(), String> {
        const BURST_S: f64 = 1.0;
        let mut sum_s = 0.0;
        for &(at, yielded_in_s) in &self.drawn {
            sum_s += yielded_in_s;
            let most_s = BURST_S + at.since(self.began).as_secs_f64() + self.rounded_s;
            // The clock counts microseconds.
            if sum_s > most_s + Duration::from_micros(1).as_secs_f64() {
                return Err(format!("IDs of {sum_s} s were drawn until {most_s} s: {:?}", self.drawn));
            }
        }
        Ok(())
    }
}

/// Returns the rules for each client at this rate.
fn rules(per_second: u32, before: &Rules) -> Rules {
    let name = String::from(ANONYMOUS);
    let settings = IdentitySettings { name, rate: Some(per_second), ..IdentitySettings::default() };
    let before = before.identities.get(ANONYMOUS).map(AsRef::as_ref);
    Rules::new([(Identity::new(&settings, &[], Vec::new(), 1, before), Vec::new())], None, None)
}
