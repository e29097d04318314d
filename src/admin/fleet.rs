//! The check of a fleet: its ceilings at the coordinator.

use super::finding::{about_daemon, fail, ok, seconds, warn};
use super::status::{Check, FleetStatus};

/// The time before its end from which the certificate for the coordinator causes a warning.
const ENDS_SOON_S: f64 = 30.0 * 86_400.0;

/// Checks the daemon's certificate for the coordinator.
pub(super) fn check_certificate(ends_unix_s: i64, now_unix_s: f64) -> Check {
    let left_s = ends_unix_s as f64 - now_unix_s;
    let result = if left_s <= 0.0 {
        warn("fleet.certificate has expired: the coordinator refuses new connections; renew it, and its key")
    } else if left_s < ENDS_SOON_S {
        let left = seconds(left_s);
        warn(format!(
            "fleet.certificate ends in {left}; the coordinator refuses it then: renew it, and its key"
        ))
    } else {
        ok("fleet.certificate lasts for another month and longer")
    };
    about_daemon("fleet_certificate", result)
}

/// Checks the ceilings at the fleet's coordinator. An outage alone does not make a daemon unready: all daemons of the fleet
/// have it at the same time.
pub(super) fn check_fleet(fleet: &FleetStatus) -> Check {
    if let Some(reason) = &fleet.waits_for {
        let waits = fail(format!("waits for a worker number, and hands out nothing: {reason}"));
        return about_daemon("fleet", waits);
    }
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
                let silent = silent.map(String::from);
                status.fleet = Some(FleetStatus { raises: 1, left_s, silent, ..FleetStatus::default() });
            }
        };
        assert_eq!(checked(fleet(200.0, None)), (true, None));
        finds("fleet", Level::Warn, "refused; IDs last for another 2 min", fleet(120.0, Some("refused")));
        finds("fleet", Level::Fail, "cannot be raised: refused", fleet(0.0, Some("refused")));
        finds("fleet", Level::Fail, "being raised", fleet(0.0, None));
    }

    #[test]
    fn a_certificate_for_the_coordinator_warns_a_month_before_its_end() {
        let ends_in = |days: i64| {
            move |status: &mut Status| {
                let now_s = (status.started_unix_s + status.uptime_s) as i64;
                let certificate_ends_unix_s = Some(now_s + days * 86_400);
                status.fleet =
                    Some(FleetStatus { left_s: 200.0, certificate_ends_unix_s, ..FleetStatus::default() });
            }
        };
        assert_eq!(checked(ends_in(31)), (true, None));
        finds("fleet_certificate", Level::Warn, "ends in 29 days", ends_in(29));
        finds("fleet_certificate", Level::Warn, "has expired", ends_in(-1));
    }
}
