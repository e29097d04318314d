//! Compares two runs, or two sets of runs: the figures that differ by more than equal runs do.
//!
//! Two runs of the same daemon on the same machine never give the same figures, and only repeated runs show
//! how much they differ. So:
//!
//! - With several runs on a side, the spread is theirs: a figure differs if the 99.9 % interval of its ratio,
//!   by Student's t, leaves out 1. See [`spread::of_runs`].
//! - With one run each, the spread comes from the seconds within the runs, as if a run were no steadier than
//!   one of its seconds, see [`spread::of_seconds`]. That is far wider than the standard error of the
//!   seconds' mean: differences between runs (the placement of threads, other programs) do not average out
//!   within a run. To this spread is added how far whole runs are known to differ even if their seconds
//!   agree. A figure that a single second does not resolve is left open.
//!
//! A ratio nearer to 1 than [`ALWAYS_SAME`] is no difference, and an interval wider than [`CAN_TELL`] is not
//! called the same.
//!
//! - [`spread`]: intervals. [`figures`]: the figures and their values. [`alike`]: whether the runs may be
//!   compared.
//! - [`table`]: for the terminal.

pub(crate) mod alike;
pub(crate) mod figures;
pub(crate) mod spread;
pub(crate) mod table;

use serde::Serialize;

use crate::report::json::{FORMAT, Run};
use figures::Figure;
use spread::Interval;

/// Ratios nearer to 1 than this are no difference that anyone would act on.
pub(crate) const ALWAYS_SAME: f64 = 1.05;

/// An interval that reaches further than this factor from 1 holds a doubling or a halving, and is not called
/// the same.
pub(crate) const CAN_TELL: f64 = 2.0;

/// The result for one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// No difference beyond the spread.
    Same,
    /// B does worse.
    Worse,
    /// B does better.
    Better,
    /// The data does not carry an answer.
    CannotTell,
}

/// The result for all figures together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// No figure differs, and at least one of response time is known not to.
    Equal,
    /// Some figures are worse and none is better.
    Worse,
    /// Some are better and none is worse.
    Better,
    /// Both.
    Mixed,
    /// No figure is known to differ, and none of response time is known to be the same.
    CannotTell,
}

impl Verdict {
    /// Returns the exit code for a script that must not let a slower build pass.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Equal | Self::Better => 0,
            Self::Worse | Self::Mixed => 1,
            Self::CannotTell => 2,
        }
    }
}

/// The origin of the spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SpreadFrom {
    /// The seconds within one run on each side.
    Seconds,
    /// Several runs.
    Runs,
}

/// One figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) figure: Figure,
    /// A's value: of several runs, their geometric mean.
    pub(crate) a: Option<f64>,
    /// B's.
    pub(crate) b: Option<f64>,
    /// B's divided by A's.
    pub(crate) ratio: Option<f64>,
    /// The interval of the ratio; from one run each, of the ratio of a typical second.
    pub(crate) interval: Option<Interval>,
    pub(crate) call: Call,
    /// The reason why the data does not answer.
    pub(crate) why: Option<&'static str>,
}

/// All figures of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// `comparison`.
    pub(crate) kind: &'static str,
    pub(crate) verdict: Verdict,
    /// The last line of the table.
    pub(crate) summary: String,
    pub(crate) spread_from: SpreadFrom,
    /// Differences between the runs besides the target.
    pub(crate) warnings: Vec<String>,
    /// The figures.
    pub(crate) rows: Vec<Row>,
}

/// Compares two sides, each of at least one run.
///
/// # Errors
/// One line if the runs measured different things and must not be compared.
pub(crate) fn compare(a: &[Run], b: &[Run]) -> Result<Comparison, String> {
    let warnings = alike::warnings(a, b)?;
    let spread_from = if a.len() + b.len() > 2 { SpreadFrom::Runs } else { SpreadFrom::Seconds };
    let rows: Vec<Row> = figures::all().into_iter().filter_map(|figure| row(figure, a, b)).collect();
    let verdict = verdict(&rows);
    let summary = table::summary(verdict, &rows);
    Ok(Comparison { format: FORMAT, kind: "comparison", verdict, summary, spread_from, warnings, rows })
}

/// Compares one figure, if any run has it.
fn row(figure: Figure, a: &[Run], b: &[Run]) -> Option<Row> {
    let values = |runs: &[Run]| runs.iter().map(|run| figure.value(run)).collect::<Option<Vec<f64>>>();
    let (a_values, b_values) = (values(a), values(b));
    if a_values.is_none() && b_values.is_none() {
        return None;
    }
    let mean = |values: &Option<Vec<f64>>| values.as_deref().map(|values| figure.mean(values));
    let (a_mean, b_mean) = (mean(&a_values), mean(&b_values));
    let ratio = a_mean.zip(b_mean).filter(|&(a, b)| a > 0.0 && b > 0.0).map(|(a, b)| b / a);
    let mut row = Row {
        figure,
        a: a_mean,
        b: b_mean,
        ratio,
        interval: None,
        call: Call::CannotTell,
        why: Some("one side has no such figure"),
    };
    let Some((a_values, b_values)) = a_values.zip(b_values) else {
        return Some(row);
    };
    let call = if figure == Figure::Errors {
        errors(&a_values, &b_values)
    } else {
        interval(figure, (a, &a_values), (b, &b_values)).and_then(|interval| {
            let ratio = ratio.ok_or("a value is 0")?;
            row.interval = Some(interval);
            judge(interval, ratio, figure)
        })
    };
    (row.call, row.why) = match call {
        Ok(call) if blames_generator(figure, call, a, b) => {
            (Call::CannotTell, Some("the generator itself was late"))
        }
        Ok(call) => (call, None),
        Err(why) => (Call::CannotTell, Some(why)),
    };
    Some(row)
}

type Side<'a> = (&'a [Run], &'a [f64]);

fn interval(
    figure: Figure,
    (a, a_values): Side<'_>,
    (b, b_values): Side<'_>,
) -> Result<Interval, &'static str> {
    match (a, b) {
        ([a], [b]) => spread::of_seconds(
            &figure.seconds(a)?,
            &figure.seconds(b)?,
            alike::was_busy(a) || alike::was_busy(b),
        ),
        _ => spread::of_runs(a_values, b_values),
    }
}

/// Judges an interval; `ratio` is that of the figures themselves, which a few seconds may have made.
fn judge(interval: Interval, ratio: f64, figure: Figure) -> Result<Call, &'static str> {
    let away = |ratio: f64| ratio.max(1.0 / ratio);
    let margin = interval.margin();
    if interval.leaves_out_one() && away(interval.ratio) > ALWAYS_SAME {
        if (interval.ratio > 1.0) != (ratio > 1.0) {
            return Err("its seconds say the opposite");
        }
        let more = interval.ratio > 1.0;
        return Ok(if more == figure.more_is_worse() { Call::Worse } else { Call::Better });
    }
    if interval.high > CAN_TELL || interval.low < 1.0 / CAN_TELL {
        return Err("the spread is too wide");
    }
    if away(ratio) > (margin * away(interval.ratio)).max(ALWAYS_SAME) {
        return Err("a few seconds make the difference");
    }
    Ok(Call::Same)
}

/// Compares errors: none on one side and some on the other is a difference.
fn errors(a: &[f64], b: &[f64]) -> Result<Call, &'static str> {
    let any = |values: &[f64]| values.iter().any(|&errors| errors > 0.0);
    match (any(a), any(b)) {
        (false, false) => Ok(Call::Same),
        (false, true) => Ok(Call::Worse),
        (true, false) => Ok(Call::Better),
        (true, true) => Err("both have errors"),
    }
}

/// Returns true if the target's own part explains less than half of a difference in response time.
fn blames_generator(figure: Figure, call: Call, a: &[Run], b: &[Run]) -> bool {
    let Figure::Response(name) = figure else {
        return false;
    };
    let mean = |runs: &[Run], value: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<f64>> = runs.iter().map(value).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len().max(1) as f64)
    };
    let difference = |value: &dyn Fn(&Run) -> Option<f64>| Some(mean(b, value)? - mean(a, value)?);
    let response = difference(&|run| run.response_time.at(name));
    let target = difference(&|run| run.target_time.at(name));
    let explained = response.zip(target).is_some_and(|(response, target)| target / response >= 0.5);
    matches!(call, Call::Worse | Call::Better) && !explained
}

/// Returns the verdict.
fn verdict(rows: &[Row]) -> Verdict {
    let has = |call| rows.iter().any(|row| row.call == call);
    // No figure for the rate is needed for "same": an open loop sends at the rate that it was given.
    match (has(Call::Worse), has(Call::Better)) {
        (true, true) => Verdict::Mixed,
        (true, false) => Verdict::Worse,
        (false, true) => Verdict::Better,
        (false, false) => {
            let latency =
                rows.iter().any(|row| matches!(row.figure, Figure::Response(_)) && row.call == Call::Same);
            if latency { Verdict::Equal } else { Verdict::CannotTell }
        }
    }
}

#[cfg(test)]
mod tests;
