//! The instants at which requests are due.
//!
//! Each request has a place in an arrival process of rate 1. The places of evenly spaced requests
//! are 0, 1, 2, and so on. With Poisson arrivals, the steps from place to place are exponential,
//! and 1 on average. The place divided by the rate is the instant at which the request is due. Each
//! of n threads takes every n-th place of even spacing, or makes Poisson steps that are n on
//! average. So all threads together have the same arrival process as a single thread.

/// The spacing of an open loop's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// At equal distances.
    Even,
    /// At random instants, as from many independent users.
    Poisson,
}

/// The instants at which one thread's requests are due, in nanoseconds from the start of the run.
/// They ascend and never end.
#[derive(Debug)]
pub(crate) struct Schedule {
    rate_per_s: f64,
    arrivals: Arrivals,
    step: f64,
    /// The place of the next request in the arrival process of rate 1.
    next: f64,
    random: fastrand::Rng,
}

impl Schedule {
    /// Returns the schedule of the thread with the index `thread`. All threads together send
    /// `rate_per_s` requests per second, a number above 0.
    pub(crate) fn new(rate_per_s: f64, arrivals: Arrivals, thread: usize, threads: usize) -> Self {
        // The seed depends only on the thread, so every run has the same schedule.
        let random = fastrand::Rng::with_seed((thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut schedule = Self { rate_per_s, arrivals, step: threads as f64, next: thread as f64, random };
        if arrivals == Arrivals::Poisson {
            schedule.next = schedule.random_step();
        }
        schedule
    }

    /// Returns the instant at which the next request is due.
    pub(crate) fn due_ns(&self) -> u64 {
        (self.next / self.rate_per_s * 1e9) as u64
    }

    /// Moves on to the next request.
    pub(crate) fn advance(&mut self) {
        self.next += match self.arrivals {
            Arrivals::Even => self.step,
            Arrivals::Poisson => self.random_step(),
        };
    }

    /// Draws an exponential step of mean `step`, by inversion. The logarithm's argument is never 0.
    fn random_step(&mut self) -> f64 {
        -(1.0 - self.random.f64()).ln() * self.step
    }
}

#[cfg(test)]
mod tests {
    use statrs::statistics::Statistics;

    use super::*;

    /// Returns the instants before `until_ns` at which requests of these threads are due.
    fn dues_ns(arrivals: Arrivals, threads: usize, until_ns: u64) -> Vec<u64> {
        let mut dues = Vec::new();
        for thread in 0..threads {
            let mut schedule = Schedule::new(1_000.0, arrivals, thread, threads);
            while schedule.due_ns() < until_ns {
                dues.push(schedule.due_ns());
                schedule.advance();
            }
        }
        dues.sort_unstable();
        dues
    }

    #[test]
    fn poisson_steps_have_the_mean_and_spread_of_the_process() {
        for threads in [1, 2, 3, 8] {
            let dues_ns = dues_ns(Arrivals::Poisson, threads, 200_000_000_000);
            let steps_us: Vec<f64> =
                dues_ns.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1_000.0).collect();
            // The standard errors of the mean and of the standard deviation are 0.2 % and 0.3 %.
            assert!(((&steps_us).mean() / 1_000.0 - 1.0).abs() < 0.02, "{threads}");
            assert!(((&steps_us).population_std_dev() / 1_000.0 - 1.0).abs() < 0.03, "{threads}");
        }
    }

    #[test]
    fn threads_share_the_rate_evenly() {
        let even = dues_ns(Arrivals::Even, 3, 1_000_000_000);
        assert_eq!(even.len(), 1_000);
        assert!(even.windows(2).all(|pair| pair[1] - pair[0] >= 999_999), "no two requests are due at once");
    }
}
