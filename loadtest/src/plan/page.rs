//! The plan as a page of Markdown for a ticket: the result, the reasons, and the checks.

use super::{Binding, Plan, RESIDENT_BYTES};
use crate::schedule::Arrivals;
use crate::units::{counted, grouped, ids, ids_per_s};

/// Returns the page.
pub(crate) fn markdown(plan: &Plan) -> String {
    [head(plan), inputs(plan), daemons(plan), costs(plan), assumptions(plan), check(plan)].concat()
}

/// Returns a table of two columns; a row without a value is left out.
fn table(head: &str, rows: Vec<(&str, Option<String>)>) -> String {
    let row = |(name, value): (&str, Option<String>)| Some(format!("| {name} | {} |\n", value?));
    format!("| {head} |\n|---|---|\n{}", rows.into_iter().filter_map(row).collect::<String>())
}

fn list(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| format!("- {line}\n")).collect()
}

fn name(binding: Binding) -> (&'static str, &'static str) {
    match binding {
        Binding::Layout => ("layout", "the IDs there are for its worker IDs"),
        Binding::Cpu => ("CPU", "the requests per second that the sweep found"),
        Binding::Network => ("network", "the bytes of the requests"),
    }
}

fn head(plan: &Plan) -> String {
    let (all, each) = (plan.daemons + plan.spare, plan.inputs.worker_ids_each);
    let used = plan.space.as_ref().map(|space| grouped(space.worker_ids_used as f64));
    let cores = plan.cores_each.zip(plan.busy_cores_each);
    let cores =
        cores.map(|(cores, busy)| format!("{} for each daemon ({busy:.2} busy)", grouped(cores as f64)));
    let (limit, meaning) = name(plan.binding);
    let (ids, requests) = (ids_per_s(plan.ids_per_s_each), grouped(plan.requests_per_s_each));
    let rows = vec![
        ("daemons", Some(format!("{all}: {} for the load, {} spare", plan.daemons, plan.spare))),
        ("worker IDs", used.map(|used| format!("{used}: {each} for each daemon"))),
        ("cores", cores.or(Some("not known from this sweep".to_owned()))),
        ("binding limit", Some(format!("{limit}: {meaning}"))),
        ("load of each", Some(format!("{ids}, {requests} requests/s, with the spare ones down"))),
        ("objective", Some(plan.inputs.objective.clone())),
    ];
    let (daemons, rate) = (counted(all, "daemon"), ids_per_s(plan.inputs.ids_per_s));
    format!("# Snowbank: {daemons} for {rate}\n\n{}", table(" | ", rows))
}

fn inputs(plan: &Plan) -> String {
    let inputs = &plan.inputs;
    let (knee, batch) = (ids_per_s(inputs.knee_ids_per_s), ids(inputs.knee_batch));
    let requests = grouped(inputs.knee_ids_per_s / inputs.knee_batch);
    let cost = plan.cpu_cost.map(|cost| {
        let (us, requests) = (cost.us_per_request, grouped(cost.requests_per_s));
        format!("{us:.2} us, in the step of {requests} requests/s")
    });
    let rows = vec![
        ("rate R", Some(ids_per_s(inputs.ids_per_s))),
        ("IDs a request B", Some(grouped(inputs.batch))),
        ("head-room H", Some(format!("{} %", grouped(inputs.headroom * 100.0)))),
        ("connections to a daemon", Some(grouped(inputs.connections_each as f64))),
        ("layout", Some(inputs.layout.clone().unwrap_or_else(|| "none".to_owned()))),
        ("knee of the sweep", Some(format!("{knee}, {batch} a request, {requests} requests/s"))),
        ("daemon's processor time a request", cost),
        ("swept on", Some(inputs.measured_on.clone())),
    ];
    format!("\n## Inputs\n\n{}", table("input | value", rows))
}

fn daemons(plan: &Plan) -> String {
    let Plan { daemons, spare, inputs, .. } = plan;
    let row = |limit: &super::DaemonLimit| {
        let binds = if limit.binding == plan.binding { " (binds)" } else { "" };
        let (name, _) = name(limit.binding);
        format!("| {name}{binds} | {} | {} |\n", limit.formula, grouped(limit.ids_per_s))
    };
    let limits: String = plan.limits.iter().map(row).collect();
    let (lowest, share) = (plan.lowest_limit(), 1.0 - inputs.headroom);
    let exact = inputs.ids_per_s / (lowest * share);
    let (rate, lowest, share) = (grouped(inputs.ids_per_s), grouped(lowest), grouped(share));
    format!(
        "\n## Number of daemons\n\nThe limits of one daemon:\n\n| limit | | IDs/s |\n|---|---|---|\n{limits}\n\
         Daemons for the load = R ÷ (lowest limit × (1 − H)), rounded up\n\
         = {rate} ÷ ({lowest} × {share}) = {exact:.2}, so {daemons}.\n\
         With {spare} spare: {}.\n",
        daemons + spare
    )
}

fn costs(plan: &Plan) -> String {
    let (inputs, wire, requests) = (&plan.inputs, &plan.wire, grouped(plan.requests_per_s_each));
    let cpu = plan.cpu_cost.zip(plan.busy_cores_each).zip(plan.cores_each).map(|((cost, busy), cores)| {
        let (us, wanted) = (cost.us_per_request, busy / (1.0 - inputs.headroom));
        let cores = counted(cores, "core");
        format!(
            "{requests} requests/s × {us:.2} us = {busy:.3} cores busy; ÷ (1 − H) = {wanted:.3}, so {cores}."
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
    format!("\n## Needs of each daemon\n\n{}", list(lines.into_iter().chain(space(plan))))
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
            "Unused IDs: {unused:.1} % of the IDs of the daemons for the load. They pass with time, used or not, so an \
             unused ID costs no day of the layout's life."
        ),
        format!("The layout has IDs until {ends}, {years:.1} years from now, at any rate."),
    ]
}

fn assumptions(plan: &Plan) -> String {
    let none = ["The machines are like the one that was swept.".to_owned()];
    let lines = if plan.warnings.is_empty() { list(none) } else { list(plan.warnings.clone()) };
    format!("\n## Assumptions\n\n{lines}")
}

fn check(plan: &Plan) -> String {
    let limit = ids_per_s(plan.lowest_limit() * (1.0 - plan.inputs.headroom));
    let spare = match plan.spare {
        0 => String::new(),
        spare => {
            format!(
                "Then load all at once with the whole rate, and stop {}: no request may be refused. Add `--rate {:.0}/s`, \
                 `--may-lose {spare}`, and an `--address` for each.\n",
                counted(spare, "daemon"),
                plan.inputs.ids_per_s
            )
        }
    };
    format!(
        "\n## Checks\n\nLoad each daemon with its share of the rate, one after the other, from another machine:\n\n\
         ```text\n{}\n```\n\nThe run has to pass (exit code 0).\n{spare}\
         Every daemon needs worker IDs of its own: `snowbank check --config FILE` prints them.\n\
         Alert when a daemon hands out more than {limit}, its limit less the head-room.\n",
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
