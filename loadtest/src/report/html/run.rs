//! The page of a run.

use maud::{Markup, html};

use super::chart::{Axis, Chart, Ink, Series, Shape};
use super::seconds::{limit_line, seconds};
use super::{card, facts, origin_facts, page, sign_and_class};
use crate::report::QUANTILES;
use crate::report::json::{Run, Times};
use crate::units::{count, counted, percent, rate, time};
use crate::verdict::quantile_name;

/// The labels of a percentile chart's axis.
const QUANTILE_TICKS: [(f64, &str); 7] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (0.999_999, "99.9999 %"),
];

/// Returns the page's text.
pub(crate) fn render(run: &Run) -> String {
    let title = format!("{}: {} IDs/s, snowbank-loadtest", run.verdict, rate(run.ids_per_s));
    let content = html! {
        (head(run))
        (cards(run))
        (latencies(run))
        (seconds(run))
        (errors(run))
        (generator(run))
        section {
            h2 { "What was run" }
            (origin_facts(&run.origin))
            (target_facts(run))
        }
    };
    page(&title, &run.loop_kind, &content)
}

fn head(run: &Run) -> Markup {
    let mean = if run.loop_kind == "closed loop" { " as fast as answers came" } else { "" };
    let (sign, class) = sign_and_class(&run.verdict);
    html! {
        header class=(class) {
            h1 {
                span class="verdict" { span aria-hidden="true" { (sign) } " " (run.verdict) }
                " " (rate(run.ids_per_s)) " IDs/s" (mean)
                @for latency in &run.objectives.latencies {
                    ", " (latency.quantile) " " (time(latency.found_us))
                }
            }
            @if run.reasons.is_empty() {
                p { "Every objective was met, and every ID was as promised." }
            } @else {
                ul { @for reason in &run.reasons { li { (reason) } } }
            }
        }
    }
}

fn cards(run: &Run) -> Markup {
    let offered = run.wanted_ids_per_s.map(|wanted| format!("{} offered", rate(wanted)));
    let reached = run.objectives.ids_per_s.map(|wanted| format!("at least {} wanted", rate(wanted)));
    let below_rate = offered.or(reached).unwrap_or_else(|| "as fast as answers came".to_owned());
    let refused: u64 = run.refused.values().sum();
    html! {
        dl class="cards" {
            @for name in ["p50", "p99", "p99.9", "max"] { (latency_card(run, name)) }
            (card("IDs per second", &rate(run.ids_per_s), &html! { (below_rate) }))
            (card("Requests answered", &count(run.answered), &html! { "of " (count(run.requests)) }))
            (card("Errors", &count(run.errors()), &html! {
                (count(refused)) " refused, " (count(run.unanswered)) " unanswered"
            }))
            (card("IDs checked", &count(run.checked_ids), &html! { "the warm-up’s included" }))
        }
    }
}

fn latency_card(run: &Run, name: &str) -> Markup {
    let found = run.response_time.at(name).filter(|_| run.response_time.count > 0);
    let found = found.map_or_else(|| "–".to_owned(), time);
    let objective = run.objectives.latencies.iter().find(|latency| latency.quantile == name);
    let objective = objective.map(|objective| (objective.met, time(objective.limit_us)));
    card(
        &format!("Response time, {name}"),
        &found,
        &html! {
            @match objective {
                Some((true, limit)) => span class="met" { "✓ within " (limit) },
                // The verdict is about the target alone.
                Some((false, limit)) if run.verdict == "pass" => {
                    span class="met" { "✓ within " (limit) " without the machine’s delays" }
                },
                Some((false, limit)) => span class="missed" { "✗ not within " (limit) },
                None => {}
            }
        },
    )
}

pub(super) fn latencies(run: &Run) -> Markup {
    let closed = run.schedule_slip.is_none();
    let slip = run.schedule_slip.as_ref().map(|slip| ("Schedule slip", slip));
    let target = run.target_time.as_ref().map(|target| ("Target’s at least", target));
    let rows = [("Response time", &run.response_time), ("Service time", &run.service_time)];
    let undisturbed = run.undisturbed_time.as_ref().map(|times| ("Without stalls", times));
    let echo = run.machine.as_ref().and_then(|machine| machine.echo_time.as_ref());
    let others = undisturbed.into_iter().chain(echo.map(|times| ("A bare echo", times)));
    html! {
        section {
            h2 { "Latency by percentile" }
            p {
                @if closed {
                    "A closed loop: requests left when answers came, so these are the times of a queue that is always full."
                } @else {
                    "Response time counts from the instant at which the schedule says that a request leaves, service time from "
                    "the instant at which it left. A gap between the two is a target that held requests back, or a generator "
                    "that was late. “Target’s at least” is service time without the generator’s own delays. “Without "
                    "stalls” is response time as if the machine had not stalled."
                }
            }
            @if run.response_time.count > 0 { (percentile_chart(run).markup()) }
            div class="scroll" tabindex="0" {
                table {
                    thead {
                        tr {
                            th { }
                            @for quantile in QUANTILES { th scope="col" { (quantile_name(quantile)) } }
                            th scope="col" { "mean" }
                            th scope="col" { "count" }
                        }
                    }
                    tbody {
                        @for (name, times) in rows.into_iter().chain(target).chain(slip).chain(others) {
                            (times_row(name, times))
                        }
                    }
                }
            }
        }
    }
}

fn times_row(name: &str, times: &Times) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            @for quantile in QUANTILES {
                td { (times.at(&quantile_name(quantile)).map_or_else(|| "–".to_owned(), time)) }
            }
            td { (time(times.mean_us)) }
            td { (count(times.count)) }
        }
    }
}

/// Returns the axis of HdrHistogram's plots: each nine takes the same space.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn percentile_chart(run: &Run) -> Chart {
    // The maximum is drawn where one request of all is left.
    let end = (run.response_time.count as f64).log10().max(1.0);
    let curve = |times: &Times| -> Vec<(f64, f64)> {
        let points = times.curve.iter().filter(|(_, us)| *us > 0.0);
        points.map(|&(quantile, us)| (nines(quantile).min(end), us.log10())).collect()
    };
    let of = |name: &str, ink, times: &Times| Series {
        name: name.to_owned(),
        ink,
        shape: Shape::Line,
        points: curve(times),
    };
    let limits = &run.objectives.latencies;
    let values = [&run.response_time, &run.service_time].into_iter().flat_map(|times| &times.curve);
    let values = values.map(|&(_, us)| us).chain(limits.iter().map(|latency| latency.limit_us));
    let tick = |(quantile, words): (f64, &str)| (nines(quantile), words.to_owned());
    let response = of("response time", Ink::First, &run.response_time);
    let service = of("service time", Ink::Second, &run.service_time);
    let quantiles = |times: &Times| {
        let named = |name| Some(format!("{name} {}", time(times.at(name)?)));
        ["p50", "p99", "p99.9", "max"].into_iter().filter_map(named).collect::<Vec<_>>().join(", ")
    };
    Chart {
        alternative: format!(
            "Latency by percentile. Response time: {}. Service time: {}. The table below has the figures.",
            quantiles(&run.response_time),
            quantiles(&run.service_time)
        ),
        x: Axis {
            range: (0.0, end),
            ticks: QUANTILE_TICKS.map(tick).into_iter().filter(|(at, _)| *at <= end).collect(),
            label: "share of requests that were at most as slow".to_owned(),
        },
        y: Axis::logarithmic(values, "", time),
        // In a closed loop a request is due when it leaves: the two are one.
        series: if run.schedule_slip.is_some() { vec![response, service] } else { vec![response] },
        limits: limits.iter().map(limit_line).collect(),
        marks: Vec::new(),
        bands: Vec::new(),
    }
}

fn errors(run: &Run) -> Markup {
    let lost = run.outage.as_ref().map_or(0, |outage| outage.lost);
    let rows = run.refused.iter().map(|(code, number)| (format!("refused: {code}"), *number));
    let unanswered = ("without an answer".to_owned(), run.unanswered);
    let lost = ("lost to the announced outage".to_owned(), lost);
    let stalled = run.client_stall.as_ref().map_or(0, |stall| stall.lost);
    let stalled = ("lost with the stalled connection".to_owned(), stalled);
    let rows: Vec<_> = rows.chain([unanswered, lost, stalled]).filter(|(_, number)| *number > 0).collect();
    html! {
        section {
            h2 { "Errors" }
            @if rows.is_empty() {
                p { "None: all " (count(run.requests)) " requests were answered with IDs." }
            } @else {
                div class="scroll errors" tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "requests" } th scope="col" { "number" } th scope="col" { "share" } } }
                        tbody {
                            @for (name, number) in rows {
                                tr {
                                    th scope="row" { (name) }
                                    td { (count(number)) }
                                    td { (percent(number as f64 / run.requests.max(1) as f64)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn generator(run: &Run) -> Markup {
    let at = |name| run.schedule_slip.as_ref().and_then(|slip| slip.at(name)).map(time);
    let daemon = run.daemon_cpu_share.map(|share| {
        let each_us = run.daemon_us_per_request().unwrap_or_default();
        format!("{} of a core, {} for each request", percent(share), time(each_us))
    });
    let throttled = Some(run.generator_throttled_share).filter(|&share| share > 0.0);
    let quota = throttled.map(|share| format!("{} of the time", percent(share)));
    html! {
        section {
            h2 { "The generator itself" }
            p { "Delays of the generator itself, not of the target. If they are too large, the run has no verdict." }
            (facts(&[
                ("Requests left late by, p99.9", at("p99.9")),
                ("Requests left late by, max", at("max")),
                ("Longest pause", Some(time(run.longest_pause_us))),
                ("Its processor time", Some(format!("{} of a core", percent(run.generator_cpu_share)))),
                ("Its busiest thread", Some(format!("{} of a core", percent(run.busiest_thread_share)))),
                ("Waited for a core that something else had", Some(time(run.generator_waited_us))),
                ("Held back by a processor quota", quota),
                ("Stalls of the machine", run.machine.as_ref().map(|machine| {
                    format!("{}, {} in all", count(machine.stalls), time(machine.stalled_us))
                })),
                ("The daemon’s processor time", daemon),
                ("Clocks apart", run.clock_offset_us.map(|us| format!("{:+.3} ms", us as f64 / 1e3))),
            ]))
        }
    }
}

pub(super) fn target_facts(run: &Run) -> Markup {
    let own = if run.own_daemon { ", started for this run" } else { "" };
    let version = run.version.as_deref().unwrap_or("version unknown");
    let spaced = run.arrivals.as_ref().map(|arrivals| format!(", {arrivals} arrivals"));
    let depth = run.depth.map(|depth| format!(", {depth} requests in flight on each connection"));
    facts(&[
        ("Target", Some(format!("{} ({} {version}{own})", run.address, run.protocol))),
        ("Source", Some(run.source.clone())),
        ("Layout", Some(run.form())),
        (
            "Dated within",
            run.window_before_us.zip(run.window_after_us).map(|(before_us, after_us)| {
                let [before, after] = [before_us, after_us].map(|us| time(us as f64));
                format!("{before} before the request to {after} after the reply")
            }),
        ),
        (
            "Numbers left out",
            run.gaps.map(|gaps| format!("{} in {}", count(gaps.numbers), counted(gaps.count, "gap"))),
        ),
        ("Its full rate", run.source_per_second.map(|full_rate| format!("{} IDs/s", count(full_rate)))),
        (
            "Load",
            Some(format!("{}{}{}", run.loop_kind, spaced.unwrap_or_default(), depth.unwrap_or_default())),
        ),
        ("IDs per request", Some(run.batch.clone())),
        ("Connections", Some(run.connections.to_string())),
        ("Generator threads", Some(run.threads.to_string())),
        (
            "Measured",
            Some(format!("{} after a warm-up of {}", time(run.elapsed_s * 1e6), time(run.warm_up_s * 1e6))),
        ),
    ])
}
