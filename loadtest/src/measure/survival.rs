//! Times of which some are known only in part, because a stall of the machine cut them off.
//!
//! A request that was on its way when a stall began shows that the target took *at least* that long. To leave it
//! out would favour a slow target, because long requests meet more stalls; to count it in full would blame the
//! target for the machine. The product-limit estimator uses what is known: E. L. Kaplan, P. Meier,
//! "Nonparametric Estimation from Incomplete Observations", J. Amer. Statist. Assoc. 53 (1958), 457-481:
//!
//! ```text
//! share of times above t = product over all times v <= t of (1 - ended at v / at risk at v)
//! ```
//!
//! At risk at v are those that neither ended nor were cut off before v. The estimator is right if stalls do
//! not begin because a request is slow. A target that takes the cores is judged by its processor time.

use super::TimeHistogram;

/// Times of slow requests: ended, cut off by a stall, or begun in one.
#[derive(Debug, Default)]
pub(super) struct Survival {
    /// Those without a stall.
    pub(super) ended: TimeHistogram,
    /// The times until a stall began.
    cut: TimeHistogram,
    /// The full times of those that a stall touched, or that say nothing.
    touched: TimeHistogram,
    /// Those that say nothing although they began outside stalls.
    silent: u64,
}

impl Survival {
    /// Adds a time that no stall touched.
    pub(super) fn end(&mut self, ns: u64) {
        self.ended.saturating_record(ns);
    }

    /// Adds a time within which a stall began, after this long.
    pub(super) fn cut(&mut self, after_ns: u64, ns: u64) {
        self.cut.saturating_record(after_ns.min(ns));
        self.touched.saturating_record(ns);
    }

    /// Adds a time that began in a stall, which says nothing.
    pub(super) fn exclude(&mut self, ns: u64) {
        self.touched.saturating_record(ns);
    }

    /// Adds a time outside stalls that says nothing.
    pub(super) fn leave_out(&mut self, ns: u64) {
        self.touched.saturating_record(ns);
        self.silent += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.ended.merge(&other.ended);
        self.cut.merge(&other.cut);
        self.touched.merge(&other.touched);
        self.silent += other.silent;
    }

    /// Estimates the times of all requests if there had been no stall. Of `all`, those that are not in here were
    /// quick, and `clean_share` of all began outside stalls.
    pub(super) fn estimate(&self, all: &TimeHistogram, clean_share: f64) -> TimeHistogram {
        if self.touched.is_empty() {
            return all.clone();
        }
        let quick = all.without(&self.ended).without(&self.touched);
        let slow = (self.ended.len() + self.cut.len()) as f64;
        let began = (all.len() as f64 * clean_share - self.silent as f64).max(slow);
        let quick_share = (began - slow) / (quick.len() as f64).max(1.0);
        // Ties: what ended at a time was at risk until then.
        let mut steps: Vec<(u64, bool, f64)> = Vec::new();
        for (times, is_cut, share) in
            [(&quick, false, quick_share), (&self.ended, false, 1.0), (&self.cut, true, 1.0)]
        {
            let step = |(ns, count): (u64, u64)| (ns, is_cut, count as f64 * share);
            steps.extend(times.counts().map(step));
        }
        steps.sort_by_key(|&(ns, is_cut, _)| (ns, is_cut));
        let (mut estimate, mut above, mut at_risk) = (TimeHistogram::default(), 1.0, began);
        for (ns, is_cut, count) in steps {
            if !is_cut && at_risk > 0.0 {
                let ended = above * (count / at_risk).min(1.0);
                above -= ended;
                estimate.saturating_record_n(ns, (ended * all.len() as f64).round() as u64);
            }
            at_risk -= count;
        }
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(values: impl IntoIterator<Item = u64>) -> TimeHistogram {
        let mut times = TimeHistogram::default();
        values.into_iter().for_each(|value| times.saturating_record(value));
        times
    }

    #[test]
    fn without_a_stall_the_estimate_is_what_was_measured() {
        let mut survival = Survival::default();
        survival.end(900);
        let estimate = survival.estimate(&times([100, 200, 900]), 1.0);
        assert_eq!(estimate.counts().collect::<Vec<_>>(), [(100, 1), (200, 1), (900, 1)]);
    }

    #[test]
    fn the_product_limit_estimate_is_that_of_the_paper() {
        // Its example in section 2, 40 times each: deaths at 0.8, 3.1, 5.4, 9.2, losses at 1.0, 2.7, 7.0, 12.1.
        // The shares above the deaths are 7/8, 7/10, 21/40 and 21/80.
        let (deaths, losses) = ([8, 31, 54, 92], [10, 27, 70, 121]);
        let mut survival = Survival::default();
        for _ in 0..40 {
            deaths.iter().for_each(|&at| survival.end(at));
            losses.iter().for_each(|&at| survival.cut(at, 200));
        }
        let all = times(deaths.into_iter().chain([200; 4]).flat_map(|at| [at; 40]));
        let estimate = survival.estimate(&all, 1.0);
        assert_eq!(estimate.counts().collect::<Vec<_>>(), [(8, 40), (31, 56), (54, 56), (92, 84)]);
    }

    #[test]
    fn requests_that_stalls_cut_short_count_for_as_long_as_they_lasted() {
        // One request in ten takes 5 ms, and a stall cuts half of those off after 3 ms.
        let mut survival = Survival::default();
        (0..50).for_each(|_| survival.end(5_000));
        (0..50).for_each(|_| survival.cut(3_000, 9_000));
        let all = times([100; 900].into_iter().chain([5_000; 50]).chain([9_000; 50]));
        let late = |estimate: &TimeHistogram| estimate.share_above(2_000);
        assert!((late(&survival.estimate(&all, 1.0)) - 0.1).abs() < 0.002);
        // Those that began in a stall say nothing, however many.
        let mut most = all.clone();
        (0..1_000).for_each(|_| survival.exclude(20_000));
        most.saturating_record_n(20_000, 1_000);
        assert!((late(&survival.estimate(&most, 0.5)) - 0.1).abs() < 0.002);
    }
}
