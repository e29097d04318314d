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
