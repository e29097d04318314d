//! The file of percentiles that HdrHistogram's viewers open.

use std::fmt::Write;

use hdrhistogram::Histogram;

/// Steps in each half of the distance to 100 %, as Java's `outputPercentileDistribution` is called
/// by default.
const TICKS_PER_HALF: u32 = 5;

const NS_PER_MS: f64 = 1e6;

/// Writes the percentile distribution of a histogram of nanoseconds as text, values in
/// milliseconds: an `.hgrm` file.
pub(crate) fn percentile_distribution(histogram: &Histogram<u64>) -> String {
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        let value_ms = step.value_iterated_to() as f64 / NS_PER_MS;
        let quantile = step.quantile_iterated_to();
        total += step.count_since_last_iteration();
        // Writing to a string cannot fail.
        let _ = if quantile < 1.0 {
            writeln!(text, "{value_ms:12.3} {quantile:14.12} {total:10} {:14.2}", 1.0 / (1.0 - quantile))
        } else {
            writeln!(text, "{value_ms:12.3} {quantile:14.12} {total:10}")
        };
    }
    let mean_ms = histogram.mean() / NS_PER_MS;
    let deviation_ms = histogram.stdev() / NS_PER_MS;
    let max_ms = histogram.max() as f64 / NS_PER_MS;
    let _ = writeln!(text, "#[Mean    = {mean_ms:12.3}, StdDeviation   = {deviation_ms:12.3}]");
    let _ = writeln!(text, "#[Max     = {max_ms:12.3}, Total count    = {:12}]", histogram.len());
    let _ = writeln!(
        text,
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        histogram.buckets(),
        (2 * 10_u64.pow(histogram.sigfig().into())).next_power_of_two()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_milliseconds_and_counts_add_up() {
        let mut histogram = crate::measure::TimeHistogram::default();
        (1..=1_000_u64).for_each(|step| histogram.saturating_record(step * 1_000_000));
        let text = percentile_distribution(&histogram);
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|number| number.parse().expect("a number")).collect())
            .collect();
        assert!(rows.is_sorted_by(|one, next| one[0] <= next[0] && one[1] <= next[1] && one[2] <= next[2]));
        let half = rows.iter().find(|row| row[1] >= 0.5).expect("a median");
        assert!((half[0] - 500.0).abs() < 1.0 && (half[2] - 500.0).abs() < 2.0, "{half:?}");
        assert_eq!(rows.last().map(|row| (row[1], row[2])), Some((1.0, 1_000.0)));
        assert!(text.ends_with("SubBuckets     =         2048]\n"), "{text}");
    }
}
