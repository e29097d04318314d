//! The check of a fleet: its ceilings at the coordinator.

use super::finding::{about_daemon, fail, ok, seconds, warn};
use super::status::{Check, FleetStatus};

/// Checks the ceilings at the fleet's coordinator. An outage alone does not make a daemon unready: all daemons of the fleet
/// have it at the same time.
pub(super) fn check_fleet(fleet: &FleetStatus) -> Check {
    let left = seconds(fleet.left_s);
    let result = match &fleet.silent {
        Some(reason) if fleet.left_s <= 0.0 => fail(format!(
            "the ceiling at the coordinator is reached, and cannot be raised: {reason}; refuses with no_ceiling until it \
             can"
        )),
        Some(reason) => {
            warn(format!("the coordinator does not answer: {reason}; IDs last for another {left} without it"))
        }
        None if fleet.left_s <= 0.0 => fail(
            "the ceiling at the coordinator is reached, and being raised; refuses with no_ceiling until then",
        ),
        None => ok(format!("worker numbers held for {left} ahead")),
    };
    about_daemon("fleet", result)
}

#[cfg(test)]
mod tests {
    use super::super::checks::tests::{checked, finds};
    use super::super::status::{FleetStatus, Level, Status};

    #[test]
    fn a_coordinators_outage_warns_until_the_ceiling_is_reached() {
        let fleet = |left_s, silent: Option<&'static str>| {
            move |status: &mut Status| {
                status.fleet = Some(FleetStatus { raises: 1, left_s, silent: silent.map(String::from) });
            }
        };
        assert_eq!(checked(fleet(200.0, None)), (true, None));
        finds("fleet", Level::Warn, "refused; IDs last for another 2 min", fleet(120.0, Some("refused")));
        finds("fleet", Level::Fail, "cannot be raised: refused", fleet(0.0, Some("refused")));
        finds("fleet", Level::Fail, "being raised", fleet(0.0, None));
    }
}
