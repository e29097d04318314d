//! The fleet's part of `snowbank status`: ceilings at the coordinator.

use std::fmt::{self, Write as _};

use jiff::Timestamp;

use super::times;
use crate::admin::{FleetStatus, SourceStatus, Status, seconds};

/// Writes how long the daemon can go on without the coordinator.
pub(super) fn describe_fleet(status: &Status, out: &mut String) -> fmt::Result {
    if let Some(FleetStatus { waits_for: Some(reason), .. }) = &status.fleet {
        writeln!(out, "fleet        no worker number yet: {reason}")?;
    } else if let Some(FleetStatus { raises, left_s, silent, .. }) = &status.fleet {
        let answers = if silent.is_some() { "does not answer" } else { "answers" };
        let raised = match *raises {
            0 => String::from("not raised there yet"),
            raises => format!("raised {} there", times(raises)),
        };
        let left = seconds(*left_s);
        writeln!(
            out,
            "fleet        coordinator {answers}; IDs last for {left} without it; ceilings {raised}"
        )?;
    }
    Ok(())
}

/// Writes a source's ceiling at the coordinator, below which its worker IDs are this daemon's.
pub(super) fn describe_fleet_ceiling(
    status: &Status,
    source: &SourceStatus,
    out: &mut String,
) -> fmt::Result {
    let (Some(headroom_s), Some(snowflake)) = (source.fleet_headroom_s, source.snowflake()) else {
        return Ok(());
    };
    // The ceiling as a time: IDs are ahead of the clock during a catch-up.
    let until_s = status.started_unix_s + status.uptime_s + snowflake.ahead_s + headroom_s;
    let until = Timestamp::from_second(until_s as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    writeln!(
        out,
        "       fleet: worker {} held by this daemon until {until}, {} ahead",
        snowflake.worker_ids,
        seconds(headroom_s)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::healthy;

    #[test]
    fn fleet_ceilings_are_shown_when_all_is_well() {
        let mut status = healthy();
        status.fleet = Some(FleetStatus { raises: 1, left_s: 240.0, ..FleetStatus::default() });
        status.sources[0].fleet_headroom_s = Some(240.0);
        let mut page = String::new();
        super::super::describe(&status, None, &mut page).expect("written to a string");
        for line in [
            "fleet        coordinator answers; IDs last for 4 min without it; ceilings raised once there\n",
            "       fleet: worker 0 held by this daemon until 2027-01-15T08:05:00Z, 4 min ahead\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }
}
