//! The seconds of a run as comma-separated values.

use crate::measure::SecondFigures;

/// Returns a first line with the keys of the JSON, then a line for each second. A figure that is
/// not known is empty. A run that ended before its first second has no line.
pub(crate) fn seconds(seconds: &[SecondFigures]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for second in seconds {
        // Writing numbers to memory does not fail.
        let _ = writer.serialize(second);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests as invented;

    #[test]
    fn the_first_line_names_the_columns() {
        let text = seconds(&invented::run(&[60.0, 61.5]).seconds);
        let text = String::from_utf8(text).expect("text");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines.len(), &lines[2][..3]), (3, &["1", "10000", "10000"][..]));
        let p50 = lines[0].iter().position(|&name| name == "p50_us");
        assert_eq!(p50.map(|column| lines[2][column]), Some("61.5"));
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        assert!(seconds(&[]).is_empty());
    }
}
