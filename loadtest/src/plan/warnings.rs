//! Lists the assumptions of a plan that its sweep did not measure, one sentence each.

use super::form::Form;
use super::swept::Swept;
use super::{Binding, Plan, Wanted};
use crate::sweep::search::Limit;
use crate::units::{counted, grouped, ids_per_s};

/// The burst that a resting daemon answers at once, as a share of a second: the default `burst_window`.
const BURST_WINDOW_S: f64 = 0.01;

/// The daemon's default `max_connections`.
const MAX_CONNECTIONS: u64 = 10_000;

/// The assumption of every fleet.
const EVENLY: &str = "The requests spread evenly over the daemons. A client that stays with one daemon gives it its whole rate.";

pub(super) fn of(plan: &Plan, sweep: &Swept, wanted: &Wanted, form: &Form) -> Vec<String> {
    let mut warnings = Vec::new();
    warnings.extend(of_the_sweep(plan, sweep));
    warnings.extend(of_other_requests(plan, sweep, form));
    if plan.daemons + plan.spare > 1 {
        warnings.push(EVENLY.to_owned());
    }
    warnings.extend(of_the_fleet(plan, sweep, form));
    if wanted.spare == 0 {
        warnings.push("No spare: one daemon that stops takes its share of the rate with it.".to_owned());
    }
    warnings
}

fn of_the_sweep(plan: &Plan, sweep: &Swept) -> Vec<String> {
    let mut warnings = Vec::new();
    if sweep.versions.debug_build {
        warnings.push("The sweep was made with a debug build: its figures are not a release's.".to_owned());
    }
    if sweep.versions.loadtest != env!("CARGO_PKG_VERSION") {
        warnings.push(format!(
            "The sweep was made by version {}, this plan by {}: sweep again after an upgrade.",
            sweep.versions.loadtest,
            env!("CARGO_PKG_VERSION")
        ));
    }
    if sweep.own_daemon {
        warnings.push(format!(
            "Daemon and generator shared the {} cores: a daemon alone on such a machine does more.",
            plan.inputs.measured_cores
        ));
        if plan.cores_each.is_some_and(|cores| cores < plan.inputs.measured_cores) {
            warnings.push(format!(
                "The cores are enough for the processor time; the latency was measured with {} and is not known for fewer.",
                plan.inputs.measured_cores
            ));
        }
    } else if plan.cpu_cost.is_some() {
        warnings.push(
            "The daemon's machine is not known to the sweep: the plan is for machines like it.".to_owned(),
        );
    } else {
        warnings.push(
            "The daemon's machine is not known to the sweep, nor its processor time: the plan holds for a daemon on a \
             machine like the one that was swept, and cannot say how many cores it needs. Sweep with --metrics to know."
                .to_owned(),
        );
    }
    if sweep.at_least {
        let reason = match sweep.limit {
            Some(Limit::Machine) => "the machine of the sweep gave no verdict above it",
            _ => "the sweep went no further",
        };
        warnings.push(format!("The knee is at least the figure used here: {reason}. A daemon may do more."));
    }
    warnings
}

fn of_other_requests(plan: &Plan, sweep: &Swept, form: &Form) -> Vec<String> {
    let (inputs, mut warnings) = (&plan.inputs, Vec::new());
    if inputs.batch != inputs.knee_batch {
        warnings.push(format!(
            "Extrapolated: the sweep asked for {} IDs a request, the plan for {}. Carried over is the cost of a request, not \
             that of an ID: the same requests/s, with another number of IDs in each. Sweep with --batch {} to know.",
            grouped(inputs.knee_batch),
            grouped(inputs.batch),
            inputs.batch_option
        ));
    }
    if form.other_layout {
        warnings.push(format!(
            "Extrapolated: the sweep was made with layout {}. The arithmetic is the same for all layouts.",
            sweep.layout.as_deref().unwrap_or("unknown")
        ));
    }
    if sweep.worker_ids.is_some_and(|measured| measured as u64 != form.worker_ids_each) {
        warnings.push(format!(
            "Extrapolated: the sweep's daemon held {}, the plan's hold {} each.",
            counted(sweep.worker_ids.unwrap_or(0) as u64, "worker ID"),
            form.worker_ids_each
        ));
    }
    if inputs.connections_each != sweep.connections as u64 {
        warnings.push(format!(
            "Extrapolated: the sweep had {} connections, the plan has {}. With more connections fewer requests share a \
             system call; sweep with --connections {} to know.",
            sweep.connections, inputs.connections_each, inputs.connections_each
        ));
    }
    warnings
}

fn of_the_fleet(plan: &Plan, sweep: &Swept, form: &Form) -> Vec<String> {
    let (inputs, mut warnings) = (&plan.inputs, Vec::new());
    if inputs.connections_each > MAX_CONNECTIONS {
        warnings.push(format!(
            "{} connections are more than a daemon takes by default: raise max_connections, and the service's file limit.",
            grouped(inputs.connections_each as f64)
        ));
    }
    let Some(full_rate) = form.ids_per_s().map(|each| each as f64 * form.worker_ids_each as f64) else {
        return warnings;
    };
    let largest = f64::from(form.largest_request).max(inputs.batch);
    if largest > full_rate * BURST_WINDOW_S {
        warnings.push(format!(
            "A request for {} IDs is {:.0} ms of a daemon's full rate: it waits for ticks, and the latency objective is \
             not for it.",
            grouped(largest),
            largest / full_rate * 1e3
        ));
    }
    if plan.ids_per_s_each > full_rate / 2.0 {
        warnings.push(format!(
            "While a daemon's ID clock catches up (after a kill, or a clock that stepped back) it has half of its full rate, {}, \
             which is less than its share of {}: some requests are refused then. A head-room of 50% or more avoids that.",
            ids_per_s(full_rate / 2.0),
            ids_per_s(plan.ids_per_s_each)
        ));
    }
    warnings.extend(of_the_limit(plan, sweep, form));
    if plan.space.as_ref().is_some_and(|space| space.years_left < 1.0) {
        warnings
            .push("The layout's life ends within a year: choose another before you build on it.".to_owned());
    }
    warnings
}

/// Returns a sentence if fewer daemons might be enough.
fn of_the_limit(plan: &Plan, sweep: &Swept, form: &Form) -> Option<String> {
    let limit_of = |binding| plan.limits.iter().find(|limit| limit.binding == binding);
    let layout_ended_the_sweep = sweep.limit == Some(Limit::Layout);
    match plan.binding {
        _ if plan.daemons == 1 => None,
        Binding::Cpu if layout_ended_the_sweep => Some(
            "The sweep met the layout's limit before the processor's, so its requests/s are at least what a daemon can do: \
             fewer may be enough. Sweep a daemon with more worker IDs, or with smaller batches, to know."
                .to_owned(),
        ),
        Binding::Layout if layout_ended_the_sweep => Some(
            "The layout binds, and ended the sweep too: a daemon with more worker IDs may carry more. Sweep one to know."
                .to_owned(),
        ),
        Binding::Layout => {
            let ratio = limit_of(Binding::Cpu)?.ids_per_s / limit_of(Binding::Layout)?.ids_per_s;
            let enough = (ratio * form.worker_ids_each as f64).ceil();
            Some(format!(
                "The layout binds: with --worker-ids {enough:.0} each daemon could carry more, and fewer would do."
            ))
        }
        Binding::Cpu | Binding::Network => None,
    }
}
