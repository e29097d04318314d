//! The plan as Markdown for a ticket, in one screen: the division, its figures, and the check.

use super::{Binding, Plan, RESIDENT_BYTES};
use crate::schedule::Arrivals;
use crate::units::{counted, grouped, ids_per_s};

/// Returns the page.
pub(crate) fn markdown(plan: &Plan) -> String {
    [head(plan), limits(plan), needs(plan), assumptions(plan), check(plan)].concat()
}

fn list(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| format!("- {line}\n")).collect()
}

/// Returns the number of daemons, and the division behind it.
fn head(plan: &Plan) -> String {
    let Plan { daemons, spare, inputs, .. } = plan;
    let (lowest, share) = (plan.lowest_limit(), 1.0 - inputs.headroom);
    let exact = inputs.ids_per_s / (lowest * share);
    let (all, rate) = (counted(daemons + spare, "daemon"), ids_per_s(inputs.ids_per_s));
    let (wanted, lowest, share) = (grouped(inputs.ids_per_s), grouped(lowest), grouped(share));
    let (each, requests) = (ids_per_s(plan.ids_per_s_each), grouped(plan.requests_per_s_each));
    format!(
        "# Snowbank: {all} for {rate}\n\n\
         rate ÷ (lowest limit × (1 − head-room)) = {wanted} ÷ ({lowest} × {share}) = {exact:.2}: {daemons}, and {spare} spare.\n\
         Each serves {each} in {requests} requests/s, with the spare ones down; {}.\n",
        inputs.objective
    )
}

fn limits(plan: &Plan) -> String {
    let row = |limit: &super::DaemonLimit| {
        let binds = if limit.binding == plan.binding { " (binds)" } else { "" };
        format!("| {}{binds} | {} | {} |\n", name(limit.binding), limit.formula, grouped(limit.ids_per_s))
    };
    let limits: String = plan.limits.iter().map(row).collect();
    format!("\n| limit of one daemon | | IDs/s |\n|---|---|---|\n{limits}")
}

fn name(binding: Binding) -> &'static str {
    match binding {
        Binding::Layout => "layout",
        Binding::Cpu => "CPU",
        Binding::Network => "network",
    }
}

fn needs(plan: &Plan) -> String {
    let (inputs, wire, requests) = (&plan.inputs, &plan.wire, grouped(plan.requests_per_s_each));
    let cpu = plan.cpu_cost.zip(plan.busy_cores_each).zip(plan.cores_each).map(|((cost, busy), cores)| {
        let (us, wanted) = (cost.us_per_request, busy / (1.0 - inputs.headroom));
        let cores = counted(cores, "core");
        format!(
            "{requests} requests/s × {us:.2} us = {busy:.3} cores busy; ÷ (1 − head-room) = {wanted:.3}, so {cores}."
        )
    });
    let unknown = "not known from this sweep; run `snowbank-loadtest sweep` on that machine.";
    let (incoming, outgoing) = (grouped(wire.in_bytes), grouped(wire.out_bytes));
    let (runs, busier) = (counted(wire.runs as u64, "run"), grouped(wire.busier_bytes()));
    let mbits = grouped(plan.network_bits_per_s_each / 1e6);
    let connections = counted(inputs.connections_each, "idle connection");
    let mib = plan.memory_bytes_each as f64 / f64::from(1 << 20);
    let lines = [
        format!("CPU: {}", cpu.as_deref().unwrap_or(unknown)),
        format!(
            "Network: a request {incoming} bytes in (with the acknowledgement of its reply), a reply {outgoing} out \
             (up to {runs}), each in packets of its own; {requests} requests/s × {busier} × 8 = {mbits} Mbit/s."
        ),
        format!(
            "Memory: {} MiB + {connections} × 807 bytes = {mib:.1} MiB. The kernel's socket buffers come on top.",
            RESIDENT_BYTES >> 20
        ),
    ];
    format!("\nEach daemon needs:\n\n{}", list(lines.into_iter().chain(space(plan))))
}

fn space(plan: &Plan) -> Vec<String> {
    let Some(space) = &plan.space else {
        return vec!["IDs: the source has no layout: it ends with its numbers, not with a date.".to_owned()];
    };
    let (each, daemons, spare) = (plan.inputs.worker_ids_each, plan.daemons, plan.spare);
    let (used, all) = (grouped(space.worker_ids_used as f64), grouped(space.worker_ids as f64));
    let (unused, ends, years) = (space.unused_share * 100.0, &space.ends, space.years_left);
    vec![
        format!("Worker IDs: {each} × ({daemons} + {spare}) = {used} of the layout's {all}."),
        format!(
            "IDs: {unused:.1} % of those of the daemons for the load stay unused; the layout has IDs until {ends}, \
             {years:.1} years from now, at any rate."
        ),
    ]
}

fn assumptions(plan: &Plan) -> String {
    let none = ["The machines are like the one that was swept.".to_owned()];
    let lines = if plan.warnings.is_empty() { list(none) } else { list(plan.warnings.clone()) };
    format!("\nAssumed, and not measured:\n\n{lines}")
}

fn check(plan: &Plan) -> String {
    let limit = ids_per_s(plan.lowest_limit() * (1.0 - plan.inputs.headroom));
    format!(
        "\nTo check it, load each daemon with its share from another machine; the run has to pass:\n\n\
         ```text\n{}\n```\n\nAlert when a daemon hands out more than {limit}, its limit less the head-room.\n",
        check_command(plan)
    )
}

/// Returns the command that loads one daemon with its share.
fn check_command(plan: &Plan) -> String {
    let inputs = &plan.inputs;
    let objectives = inputs.objective.split(", ").filter_map(|objective| {
        let (quantile, limit) = objective.split_once(" within ")?;
        Some(format!("--{quantile} {}", limit.replace(' ', "")))
    });
    let source = inputs.source.as_deref().filter(|&name| name != "default");
    let mut options = vec![
        format!("--rate {:.0}/s --batch {}", plan.ids_per_s_each.ceil(), inputs.batch_option),
        format!("--connections {}", inputs.connections_each),
    ];
    options.extend(source.map(|name| format!("--source {name}")));
    options.extend((inputs.threads > 1).then(|| format!("--threads {}", inputs.threads)));
    options.extend((inputs.arrivals == Arrivals::Poisson).then(|| "--poisson".to_owned()));
    options.extend(objectives);
    format!("snowbank-loadtest --address HOST:PORT {} --for 60s", options.join(" "))
}
