//! The plan as a page of Markdown, to be pasted into a ticket: what to build, why, and what to check.

use std::fmt::Write;

use super::{Binding, Plan, RESIDENT_BYTES};
use crate::schedule::Arrivals;
use crate::units::{counted, grouped, ids_per_s};

/// The page.
pub(crate) fn markdown(plan: &Plan) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = head(plan, &mut page)
        .and_then(|()| inputs(plan, &mut page))
        .and_then(|()| working(plan, &mut page))
        .and_then(|()| costs(plan, &mut page))
        .and_then(|()| care(plan, &mut page))
        .and_then(|()| check(plan, &mut page));
    page
}

/// The binding limit in words.
fn name(binding: Binding) -> &'static str {
    match binding {
        Binding::Layout => "layout: the IDs there are for its worker IDs",
        Binding::Cpu => "CPU: the requests per second that the sweep found",
        Binding::Network => "network: the bytes of the requests",
    }
}

fn head(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let all = plan.daemons + plan.spare;
    writeln!(out, "# Snowbank: {} for {}\n", counted(all, "daemon"), ids_per_s(plan.inputs.ids_per_s))?;
    writeln!(out, "| | |\n|---|---|")?;
    writeln!(out, "| daemons | {}: {} for the load, {} spare |", all, plan.daemons, plan.spare)?;
    if let Some(space) = &plan.space {
        writeln!(
            out,
            "| worker IDs | {}: {} for each daemon |",
            grouped(space.worker_ids_used as f64),
            plan.inputs.worker_ids_each
        )?;
    }
    match (plan.cores_each, plan.busy_cores_each) {
        (Some(cores), Some(busy)) => {
            writeln!(out, "| cores | {} for each daemon ({busy:.2} busy) |", grouped(cores as f64))?;
        }
        _ => writeln!(out, "| cores | not known from this sweep |")?,
    }
    writeln!(out, "| binding limit | {} |", name(plan.binding))?;
    writeln!(
        out,
        "| load of each | {}, {} requests/s, with the spare ones down |",
        ids_per_s(plan.ids_per_s_each),
        grouped(plan.requests_per_s_each)
    )?;
    writeln!(out, "| objective | {} |", plan.inputs.objective)
}

fn inputs(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let inputs = &plan.inputs;
    writeln!(out, "\n## Inputs\n\n| input | value |\n|---|---|")?;
    writeln!(out, "| rate R | {} |", ids_per_s(inputs.ids_per_s))?;
    writeln!(out, "| IDs a request B | {} |", grouped(inputs.batch))?;
    writeln!(out, "| head-room H | {} % |", grouped(inputs.headroom * 100.0))?;
    writeln!(out, "| connections to a daemon | {} |", grouped(inputs.connections_each as f64))?;
    writeln!(out, "| layout | {} |", inputs.layout.as_deref().unwrap_or("none"))?;
    writeln!(
        out,
        "| knee of the sweep | {}, {} IDs a request, {} requests/s |",
        ids_per_s(inputs.knee_ids_per_s),
        grouped(inputs.knee_batch),
        grouped(inputs.knee_ids_per_s / inputs.knee_batch)
    )?;
    if let Some(cost) = plan.cpu_cost {
        writeln!(
            out,
            "| daemon's processor time a request | {:.2} us, in the step of {} requests/s |",
            cost.us_per_request,
            grouped(cost.requests_per_s)
        )?;
    }
    writeln!(out, "| swept on | {} |", inputs.measured_on)
}

fn working(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let inputs = &plan.inputs;
    writeln!(out, "\n## How many daemons\n\nWhat one can do:\n\n| limit | | IDs/s |\n|---|---|---|")?;
    for limit in &plan.limits {
        let name = name(limit.binding).split(':').next().unwrap_or_default();
        let binds = if limit.binding == plan.binding { " (binds)" } else { "" };
        writeln!(out, "| {name}{binds} | {} | {} |", limit.formula, grouped(limit.ids_per_s))?;
    }
    let lowest = plan.limits.iter().find(|limit| limit.binding == plan.binding);
    let lowest = lowest.map_or(0.0, |limit| limit.ids_per_s);
    writeln!(
        out,
        "\nDaemons for the load = R ÷ (lowest limit × (1 − H)), rounded up\n= {} ÷ ({} × {}) = {:.2}, so {}.\nWith {} spare: {}.",
        grouped(inputs.ids_per_s),
        grouped(lowest),
        grouped(1.0 - inputs.headroom),
        inputs.ids_per_s / (lowest * (1.0 - inputs.headroom)),
        plan.daemons,
        plan.spare,
        plan.daemons + plan.spare
    )
}

fn costs(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let (inputs, wire) = (&plan.inputs, &plan.wire);
    writeln!(out, "\n## What each takes\n")?;
    let requests = grouped(plan.requests_per_s_each);
    match (plan.cpu_cost, plan.busy_cores_each, plan.cores_each) {
        (Some(cost), Some(busy), Some(cores)) => writeln!(
            out,
            "- CPU: {requests} requests/s × {:.2} us = {busy:.3} cores busy; ÷ (1 − H) = {:.3}, so {}.",
            cost.us_per_request,
            busy / (1.0 - inputs.headroom),
            counted(cores, "core")
        )?,
        _ => writeln!(
            out,
            "- CPU: not known from this sweep; `snowbank-loadtest sweep` on that machine tells."
        )?,
    }
    writeln!(
        out,
        "- Network: a request {} bytes in (with the acknowledgement of its reply), a reply {} out (up to {}), each in \
         packets of its own; {requests} requests/s × {} × 8 = {} Mbit/s.",
        grouped(wire.in_bytes),
        grouped(wire.out_bytes),
        counted(wire.runs as u64, "run"),
        grouped(wire.busier_bytes()),
        grouped(plan.network_bits_per_s_each / 1e6)
    )?;
    writeln!(
        out,
        "- Memory: {} MiB + {} idle connections × 807 bytes = {:.1} MiB; what the kernel keeps for sockets comes on top.",
        RESIDENT_BYTES >> 20,
        grouped(inputs.connections_each as f64),
        plan.memory_bytes_each as f64 / f64::from(1 << 20)
    )?;
    let Some(space) = &plan.space else {
        return writeln!(out, "- IDs: the source has no layout: it ends with its numbers, not with a date.");
    };
    writeln!(
        out,
        "- Worker IDs: {} × ({} + {}) = {} of the layout's {}.",
        inputs.worker_ids_each,
        plan.daemons,
        plan.spare,
        grouped(space.worker_ids_used as f64),
        grouped(space.worker_ids as f64)
    )?;
    writeln!(
        out,
        "- IDs unused: {:.1} % of what the daemons for the load could hand out. They pass with time, asked for or not: it \
         costs no day of the layout's life.",
        space.unused_share * 100.0
    )?;
    writeln!(
        out,
        "- The layout has IDs until {}, {:.1} years from now, at any rate.",
        space.ends, space.years_left
    )
}

fn care(plan: &Plan, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## What it takes for granted\n")?;
    if plan.warnings.is_empty() {
        return writeln!(out, "- That the machines are like the one that was swept.");
    }
    plan.warnings.iter().try_for_each(|warning| writeln!(out, "- {warning}"))
}

fn check(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let inputs = &plan.inputs;
    writeln!(
        out,
        "\n## To check\n\nEach daemon, one after the other, at its share of the rate, from another machine:\n"
    )?;
    writeln!(out, "```text\n{}\n```", check_command(plan))?;
    writeln!(out, "\nIt has to pass (exit code 0).")?;
    if plan.spare > 0 {
        writeln!(
            out,
            "Then, at the full rate, stop {}: no request may be refused.",
            counted(plan.spare, "daemon")
        )?;
    }
    writeln!(
        out,
        "Every daemon needs worker IDs of its own: `snowbank check --config FILE` says which it holds."
    )?;
    writeln!(
        out,
        "Alert when a daemon hands out more than {}, its limit less the head-room.",
        ids_per_s(
            plan.limits.iter().map(|limit| limit.ids_per_s).fold(f64::INFINITY, f64::min)
                * (1.0 - inputs.headroom)
        )
    )
}

/// Returns the command that loads one daemon with its share.
pub(crate) fn check_command(plan: &Plan) -> String {
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
