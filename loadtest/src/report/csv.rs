//! The seconds of a run as comma-separated values.

use std::fmt::Write;

use crate::measure::SecondFigures;

const HEAD: &str = "second,ids,answered,refused,p50_us,p90_us,p99_us,p999_us,max_us,target_cpu_share,target_memory_bytes,clock_offset_us\n";

/// Returns a line for each second, with the keys of the JSON in the first. A figure that is not known is empty.
pub(crate) fn seconds(seconds: &[SecondFigures]) -> String {
    let mut text = HEAD.to_owned();
    for it in seconds {
        let SecondFigures { second, ids, answered, refused, p50_us, p90_us, p99_us, p999_us, max_us, .. } =
            it;
        let (cpu, memory, clock) =
            (known(it.target_cpu_share), known(it.target_memory_bytes), known(it.clock_offset_us));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{second},{ids},{answered},{refused},{p50_us},{p90_us},{p99_us},{p999_us},{max_us},{cpu},{memory},{clock}"
        );
    }
    text
}

fn known(figure: Option<impl ToString>) -> String {
    figure.map(|figure| figure.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn the_first_line_names_the_columns() {
        let text = seconds(&testing::run(&[60.0, 61.5]).seconds);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines.len(), &lines[2][..3]), (3, &["1", "10000", "10000"][..]));
        let p50 = lines[0].iter().position(|&name| name == "p50_us");
        assert_eq!(p50.map(|column| lines[2][column]), Some("61.5"));
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }
}
