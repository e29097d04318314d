//! The plan as Markdown for a ticket, in one screen: the division, its figures, and the check.

use super::Division;
use crate::report::json::Objective;
use crate::report::{LOAD, TARGET};
use crate::units::{counted, grouped, ids_per_s};

/// Returns the page.
pub(super) fn markdown(plan: &Division<'_>, assumptions: &[String]) -> String {
    let needs = needs(plan);
    let assumptions: String = assumptions.iter().map(|line| format!("- {line}\n")).collect();
    format!(
        "{}{}\n{needs}\nAssumed, and not measured:\n\n{assumptions}\n{}",
        head(plan),
        limits(plan),
        check(plan)
    )
}

/// Returns the number of daemons, and the division behind it.
fn head(plan: &Division<'_>) -> String {
    let (rate, spare, share) = (plan.wanted.rate.per_s(), plan.wanted.spare, 1.0 - plan.wanted.headroom.0);
    let exact = rate / (plan.lowest.ids_per_s * share);
    let all = counted(plan.daemons + u64::from(spare), "daemon");
    let (wanted, lowest, share) = (grouped(rate), grouped(plan.lowest.ids_per_s), grouped(share));
    let objectives = plan.basis.run.objectives.iter();
    let within = objectives.map(|it| format!("{} within {} ms", it.quantile, it.limit_us / 1e3));
    format!(
        "# Snowbank: {all} for {}\n\n\
         rate ÷ (lowest limit × (1 − headroom)) = {wanted} ÷ ({lowest} × {share}) = {exact:.2}: {}, and {spare} spare.\n\
         Each serves {} in {} requests/s, with the spare ones down; {}.\n",
        ids_per_s(rate),
        plan.daemons,
        ids_per_s(plan.ids_per_s_each),
        grouped(plan.requests_per_s_each),
        within.collect::<Vec<_>>().join(", ")
    )
}

fn limits(plan: &Division<'_>) -> String {
    let mut table = "\n| limit of one daemon | | IDs/s |\n|---|---|---|\n".to_owned();
    for limit in &plan.limits {
        let binds = if limit.name == plan.lowest.name { " (binds)" } else { "" };
        table += &format!("| {}{binds} | {} | {} |\n", limit.name, limit.formula, grouped(limit.ids_per_s));
    }
    table
}

fn needs(plan: &Division<'_>) -> String {
    let requests = grouped(plan.requests_per_s_each);
    let cores = match plan.us_per_request.zip(plan.cores()) {
        None => "Cores: not known from this sweep; sweep with --metrics to know.".to_owned(),
        Some((us, (busy, cores))) => format!(
            "Cores: {requests} requests/s × {us:.2} µs = {busy:.3} cores busy; ÷ (1 − headroom) = {:.3}, so {} for each \
             daemon.",
            busy / (1.0 - plan.wanted.headroom.0),
            counted(cores, "core")
        ),
    };
    let Some(numbering) = &plan.basis.numbering else { return cores + "\n" };
    format!(
        "{cores}\nWorker IDs: {} × ({} + {}) = {} of the layout's {}.\n",
        plan.basis.worker_ids,
        plan.daemons,
        plan.wanted.spare,
        plan.worker_ids(),
        grouped(numbering.layout().workers() as f64)
    )
}

fn check(plan: &Division<'_>) -> String {
    let alert = ids_per_s(plan.lowest.ids_per_s * (1.0 - plan.wanted.headroom.0));
    format!(
        "To check it, load each daemon with its share from another machine; the run has to pass:\n\n\
         ```text\n{}\n```\n\nAlert when a daemon hands out more than {alert}, its limit less the headroom.\n",
        check_command(plan)
    )
}

/// Returns the command that loads one daemon with its share.
fn check_command(plan: &Division<'_>) -> String {
    let figures = &plan.basis.run.figures;
    let mut command = format!(
        "snowbank-loadtest --address HOST:PORT --rate {:.0}/s --batch {} --connections {} --threads {}",
        plan.ids_per_s_each.ceil(),
        plan.basis.batch,
        figures.number(LOAD, "connections").unwrap_or_default(),
        figures.number(LOAD, "threads").unwrap_or_default(),
    );
    match figures.words(TARGET, "source") {
        Some("default") | None => {}
        Some(source) => command += &format!(" --source {source}"),
    }
    if figures.words(LOAD, "arrivals") == Some("poisson") {
        command += " --poisson";
    }
    for Objective { quantile, limit_us, .. } in &plan.basis.run.objectives {
        command += &format!(" --{quantile} {}ms", limit_us / 1e3);
    }
    command + " --for 60s"
}
