//! The plan as Markdown for a ticket, in one screen: the division, its figures, and the check.

use super::{Division, RESIDENT_BYTES, counted_ids};
use crate::units::{counted, grouped, ids_per_s};

/// Returns the page.
pub(super) fn markdown(plan: &Division<'_>, space: &[String], assumptions: &[String]) -> String {
    let needs: Vec<String> = needs(plan).into_iter().chain(space.iter().cloned()).collect();
    format!(
        "{}{}\nEach daemon needs:\n\n{}\nAssumed, and not measured:\n\n{}\n{}",
        head(plan),
        limits(plan),
        list(&needs),
        list(assumptions),
        check(plan)
    )
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("- {line}\n")).collect()
}

/// Returns the number of daemons, and the division behind it.
fn head(plan: &Division<'_>) -> String {
    let (rate, spare, share) = (plan.wanted.rate.per_s(), plan.wanted.spare, 1.0 - plan.wanted.headroom.0);
    let exact = rate / (plan.lowest.ids_per_s * share);
    let all = counted(plan.daemons + u64::from(spare), "daemon");
    let (wanted, lowest, share) = (grouped(rate), grouped(plan.lowest.ids_per_s), grouped(share));
    let objectives = plan.basis.objectives.iter();
    let within = objectives.map(|(quantile, limit_us)| format!("{quantile} within {} ms", limit_us / 1e3));
    format!(
        "# Snowbank: {all} for {}\n\n\
         rate ÷ (lowest limit × (1 − head-room)) = {wanted} ÷ ({lowest} × {share}) = {exact:.2}: {}, and {spare} spare.\n\
         Each serves {} in {} requests/s, with the spare ones down; {}.\n",
        ids_per_s(rate),
        plan.daemons,
        ids_per_s(plan.ids_per_s_each),
        grouped(plan.requests_per_s_each),
        within.collect::<Vec<_>>().join(", ")
    )
}

fn limits(plan: &Division<'_>) -> String {
    let row = |limit: &super::Limit| {
        let binds = if limit.name == plan.lowest.name { " (binds)" } else { "" };
        format!("| {}{binds} | {} | {} |\n", limit.name, limit.formula, grouped(limit.ids_per_s))
    };
    let limits: String = plan.limits.iter().map(row).collect();
    format!("\n| limit of one daemon | | IDs/s |\n|---|---|---|\n{limits}")
}

fn needs(plan: &Division<'_>) -> Vec<String> {
    let requests = grouped(plan.requests_per_s_each);
    let cpu = match plan.us_per_request.zip(plan.cores()) {
        None => "not known from this sweep; run `snowbank-loadtest sweep` on that machine.".to_owned(),
        Some((us, (busy, cores))) => format!(
            "{requests} requests/s × {us:.2} us = {busy:.3} cores busy; ÷ (1 − head-room) = {:.3}, so {}.",
            busy / (1.0 - plan.wanted.headroom.0),
            counted(cores, "core")
        ),
    };
    vec![
        format!("CPU: {cpu}"),
        format!(
            "Network: a request for {} is {} bytes in, its reply {} out, packets included; {requests} requests/s × {} × 8 \
             = {} Mbit/s.",
            counted_ids(plan.basis.batch.mean()),
            grouped(plan.wire.in_bytes),
            grouped(plan.wire.out_bytes),
            grouped(plan.wire.busier_bytes()),
            grouped(plan.network_bits_per_s() / 1e6)
        ),
        format!(
            "Memory: {} MiB + {} × 807 bytes = {:.1} MiB. The kernel's socket buffers come on top.",
            RESIDENT_BYTES >> 20,
            counted(plan.connections(), "idle connection"),
            plan.memory_bytes() as f64 / f64::from(1 << 20)
        ),
    ]
}

fn check(plan: &Division<'_>) -> String {
    let alert = ids_per_s(plan.lowest.ids_per_s * (1.0 - plan.wanted.headroom.0));
    format!(
        "To check it, load each daemon with its share from another machine; the run has to pass:\n\n\
         ```text\n{}\n```\n\nAlert when a daemon hands out more than {alert}, its limit less the head-room.\n",
        check_command(plan)
    )
}

/// Returns the command that loads one daemon with its share.
fn check_command(plan: &Division<'_>) -> String {
    let basis = plan.basis;
    let mut options = vec![
        format!("--rate {:.0}/s --batch {}", plan.ids_per_s_each.ceil(), basis.batch),
        format!("--connections {}", plan.connections()),
        format!("--threads {}", basis.threads),
    ];
    options.extend((basis.source != "default").then(|| format!("--source {}", basis.source)));
    options.extend((basis.arrivals == "poisson").then(|| "--poisson".to_owned()));
    options.extend(basis.objectives.iter().map(|(quantile, us)| format!("--{quantile} {}ms", us / 1e3)));
    format!("snowbank-loadtest --address HOST:PORT {} --for 60s", options.join(" "))
}
