// Asks the daemon for its status once a second while the page is visible, and draws it.
"use strict";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 4000;
// The spans of time that the charts can show. For longer spans, operators have Prometheus.
const SPANS = [
  { name: "Up to 1 hour", shown_s: 3600 },
  { name: "Last 5 minutes", shown_s: 300 },
];
// The possible distances between two times on an axis, and the width of a time's label.
const TIME_STEPS_S = [60, 120, 300, 600, 1200, 1800];
const TIME_WIDTH = 64;
// The daemon's own history is fetched this often, because it grows this often.
const HISTORY_PERIOD_S = 30;
// Percentiles are computed from the requests of this many seconds.
const LATENCY_S = 5;
const LINES_MAX = 8;

const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "polyline", "line", "text"].includes(tag);
  const node = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// ---- numbers as text

function count(n) {
  return Math.round(n).toLocaleString("en-US");
}

function rate(n) {
  if (n >= 1e9) return (n / 1e9).toFixed(2) + " G";
  if (n >= 1e6) return (n / 1e6).toFixed(2) + " M";
  if (n >= 1e4) return +(n / 1e3).toFixed(1) + " k";
  return n > 0 && n < 10 ? n.toFixed(1) : count(n);
}

function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return Math.round(seconds * 1e6) + " µs";
  if (seconds < 1) return +(seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3) + " ms";
  if (seconds < 10) return seconds.toFixed(1) + " s";
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return Math.round(seconds / 3600) + " h";
  return Math.round(seconds / 86400) + " days";
}

// Returns a count and its noun. The noun is singular if the count is 1.
function some(n, thing) {
  return `${count(n)} ${thing}${n === 1 ? "" : "s"}`;
}

// ---- moments, oldest first:
// {at_s, covers_s, ids: [per second of each source], requests, refused, latency: [seconds]}

// The moments of the daemon's history. They reach back to before this page was opened.
let past = [];
// The moments at which this page received a status, each with that status.
let seen = [];
let span = SPANS[0];

// Returns the moments of the chosen span. The hour comes from the history, its last moment from
// `seen`. The minutes come from `seen` or, before `seen` begins, from the history.
function moments() {
  const now_s = seen.at(-1)?.at_s ?? performance.now() / 1000;
  const from_s = now_s - span.shown_s;
  const live = span === SPANS[0] ? seen.slice(-1) : seen;
  const before_s = span === SPANS[0] ? now_s : (seen[0]?.at_s ?? now_s);
  return [...past.filter((one) => one.at_s < before_s), ...live].filter((one) => one.at_s >= from_s);
}

// Replaces `past` by the daemon's history. Keeps the points that this page has from before
// the daemon's last restart.
function takeHistory(history) {
  const last = seen.at(-1);
  if (!last) return;
  const started_s = last.at_s - last.status.uptime_s;
  const points = history.points.map((point) => ({
    at_s: started_s + point.uptime_s,
    covers_s: history.every_s,
    ids: point.ids,
    requests: point.requests,
    refused: point.refused,
    latency: point.latency_s,
  }));
  past = [...past.filter((one) => one.at_s <= started_s && one.at_s > last.at_s - SPANS[0].shown_s), ...points];
}

function note(status) {
  const at_s = performance.now() / 1000;
  const before = seen.at(-1);
  if (before && before.status.instance !== status.instance) {
    seen = [];
    historyAt_s = -Infinity;
  }
  const last = seen.at(-1);
  const elapsed_s = last ? status.uptime_s - last.status.uptime_s : 0;
  const perSecond = (now, then) => (elapsed_s > 0 ? Math.max(0, now - then) / elapsed_s : null);
  const sum = (of, what) => of.sources.reduce((total, source) => total + source[what], 0);
  seen.push({
    at_s,
    covers_s: 1,
    status,
    ids: status.sources.map((source, i) => perSecond(source.ids, last?.status.sources[i]?.ids ?? source.ids)),
    requests: last ? perSecond(sum(status, "requests"), sum(last.status, "requests")) : null,
    refused: last ? perSecond(sum(status, "refused"), sum(last.status, "refused")) : null,
  });
  const moment = seen.at(-1);
  moment.latency = percentiles(moment);
  seen = seen.filter((one) => one.at_s > at_s - SPANS[1].shown_s - 5);
}

// Computes the percentiles of the last seconds' requests, as Prometheus' histogram_quantile does.
function percentiles(moment) {
  const from = seen.findLast((one) => one.at_s <= moment.at_s - LATENCY_S + 0.5) ?? seen[0];
  const latency = moment.status.latency;
  const counts = latency.counts.map((n, i) => n - from.status.latency.counts[i]);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return [0.5, 0.99, 0.999].map((share) => {
    if (total <= 0) return null;
    let below = 0;
    let low_us = 0;
    for (const [i, high_us] of latency.bounds_us.entries()) {
      if (counts[i] > 0 && below + counts[i] >= share * total) {
        return (low_us + ((high_us - low_us) * (share * total - below)) / counts[i]) / 1e6;
      }
      below += counts[i];
      low_us = high_us;
    }
    return low_us / 1e6;
  });
}

// ---- charts

class Chart {
  // `lines` returns [{name, class, value(moment)}]; `write` formats a value;
  // `scale` is linear or logarithmic.
  constructor(title, hint, height, lines, write, scale) {
    Object.assign(this, { title, height, lines, write, scale, pointed_s: null });
    this.legend = make("ul", { class: "legend" });
    this.svg = make("svg", { height, role: "img" });
    const heading = make("h3", {}, title + " ", make("small", {}, hint));
    this.node = make("section", { class: "card chart" }, heading, this.legend, this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
  }

  point(event) {
    const left = this.svg.getBoundingClientRect().left;
    this.pointed_s = event && this.toTime ? this.toTime(event.clientX - left) : null;
    this.draw();
  }

  draw() {
    const lines = this.lines();
    const shownMoments = moments();
    const now_s = seen.at(-1)?.at_s ?? 0;
    const width = this.svg.clientWidth;
    if (width === 0) return;
    const [top, right, bottom] = [8, 8, 18];
    const values = lines.flatMap((line) => shownMoments.map(line.value)).filter((value) => value !== null);
    const { ticks, share } = this.scale(values);
    // If the history is shorter than the span, the chart shows what it covers, at least 5 minutes.
    const shown_s = Math.min(span.shown_s, Math.max(SPANS[1].shown_s, now_s - (shownMoments[0]?.at_s ?? now_s)));
    const left = 10 + 6.3 * Math.max(...ticks.map((tick) => this.write(tick).length));
    const toX = (at_s) => left + ((at_s - now_s + shown_s) / shown_s) * (width - left - right);
    const toY = (value) => top + (1 - share(value)) * (this.height - top - bottom);
    this.toTime = (x) => ((x - left) / (width - left - right)) * shown_s - shown_s + now_s;

    const parts = [];
    for (const tick of ticks) {
      const y = toY(tick);
      parts.push(make("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }));
      parts.push(make("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, this.write(tick)));
    }
    for (const ago_s of timesOfAxis(shown_s, width - left - right)) {
      const anchor = ago_s === 0 ? "end" : toX(now_s - ago_s) < left + 12 ? "start" : "middle";
      const name = ago_s === 0 ? "now" : `−${ago_s / 60} min`;
      parts.push(make("text", { x: toX(now_s - ago_s), y: this.height - 3, "text-anchor": anchor }, name));
    }
    for (const line of lines) {
      for (const points of unbroken(shownMoments, line.value)) {
        const text = points.map(([at_s, value]) => `${toX(at_s).toFixed(1)},${toY(value).toFixed(1)}`).join(" ");
        parts.push(make("polyline", { class: line.class, points: text }));
      }
    }
    const shown = this.pointed(shownMoments);
    if (shown && this.pointed_s !== null) {
      const x = toX(shown.at_s);
      parts.push(make("line", { class: "cursor", x1: x, x2: x, y1: top, y2: this.height - bottom }));
    }
    this.svg.replaceChildren(...parts);
    const words = (line) => (shown ? this.write(line.value(shown)) : "–");
    this.legend.replaceChildren(
      ...lines.map((line) => make("li", {}, make("i", { class: line.class }), line.name + " ", make("b", {}, words(line)))),
    );
    this.svg.setAttribute("aria-label", `${this.title}: ${lines.map((line) => `${line.name} ${words(line)}`).join(", ")}`);
  }

  // Returns the moment under the pointer, or the last moment.
  pointed(shownMoments) {
    if (this.pointed_s === null) return seen.at(-1);
    const distance = (one) => Math.abs(one.at_s - this.pointed_s);
    return shownMoments.reduce((best, one) => (best && distance(best) <= distance(one) ? best : one), undefined);
  }
}

// Returns as many times as fit on an axis, in seconds ago.
function timesOfAxis(shown_s, width) {
  const step_s = TIME_STEPS_S.find((step_s) => (shown_s / step_s) * TIME_WIDTH <= width) ?? TIME_STEPS_S.at(-1);
  return Array.from({ length: Math.floor(shown_s / step_s) + 1 }, (_, i) => i * step_s);
}

// Returns a scale from 0 to a round number above the highest value,
// in steps of a third to a half of this number.
function linear(values) {
  const value = Math.max(0, ...values);
  if (value <= 0) return { ticks: [0, 1], share: (v) => v };
  const power = 10 ** Math.floor(Math.log10(value));
  const [highest, step] = [[1, 0.5], [1.5, 0.5], [2, 1], [3, 1], [4, 2], [6, 2], [8, 4], [10, 5]].find(
    ([most]) => most * power >= value * 1.02,
  ) ?? [15, 5];
  const ticks = Array.from({ length: Math.round(highest / step) + 1 }, (_, i) => i * step * power);
  return { ticks, share: (v) => v / (highest * power) };
}

// Returns a logarithmic scale between two powers of ten, so that microseconds
// stay visible beside seconds.
function logarithmic(values) {
  const decade = (v, round) => Math.max(-6, round(Math.log10(v)));
  const low = values.length > 0 ? decade(Math.min(...values), Math.floor) : -5;
  const high = Math.max(low + 2, ...values.map((v) => decade(v, Math.ceil)));
  const ticks = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
  return { ticks, share: (v) => (Math.max(low, Math.log10(v)) - low) / (high - low) };
}

// Returns the points of a line. It has gaps where moments are missing or have no value.
function unbroken(shownMoments, value) {
  const pieces = [];
  let last_s = -Infinity;
  for (const moment of shownMoments) {
    const here = value(moment);
    if (here === null) {
      last_s = -Infinity;
      continue;
    }
    // From the last moment of the history to the next moment, it can take up to
    // two periods of the history.
    const isLive = moment.covers_s === 1 && last_s >= (seen[0]?.at_s ?? 0) && span !== SPANS[0];
    if (moment.at_s - last_s > (isLive ? 5 : 2 * HISTORY_PERIOD_S + 5)) pieces.push([]);
    pieces.at(-1).push([moment.at_s, here]);
    last_s = moment.at_s;
  }
  return pieces;
}

// Returns lines for the busiest sources only, because nobody can read a chart with 64 lines.
function sourceLines(value) {
  const sources = seen.at(-1)?.status.sources ?? [];
  const busiest = sources.map((source, i) => [source.ids, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const shown = busiest.slice(0, LINES_MAX).map(([, i]) => i).sort((a, b) => a - b);
  return shown.map((i, n) => ({
    name: sources[i].name,
    class: "c" + n,
    value: (moment) => value(moment, i) ?? null,
  }));
}

const charts = [
  new Chart("IDs per second", "by source", 190, () => sourceLines((moment, i) => moment.ids[i]), (v) => (v === null ? "–" : rate(v)), linear),
  new Chart(
    "Request latency",
    "in the daemon: bytes read to reply on its way",
    150,
    () => ["half within", "99 % within", "99.9 % within"].map((name, i) => ({ name, class: ["c2", "c0", "c1"][i], value: (moment) => moment.latency[i] })),
    duration,
    logarithmic,
  ),
  new Chart("Requests refused per second", "of all sources", 150, () => [{ name: "refused", class: "c1", value: (moment) => moment.refused }], (v) => (v === null ? "–" : rate(v)), linear),
];

// ---- findings and figures

function drawState(status) {
  const { findings, headline, ready } = status;
  const look = findings.length === 0 ? "good" : findings[0].effect === "look" ? "warn" : "bad";
  showState(look, headline, together(findings).map((one) => make("li", {}, make("b", {}, about(one)), one.message)));
  document.title = (ready ? (findings.length > 0 ? "! " : "") : "✗ ") + "Snowbank " + status.instance;
}

// If several sources have the same finding, shows it only once.
function together(findings) {
  const groups = new Map();
  for (const finding of findings) {
    const key = finding.name + finding.message;
    if (groups.has(key)) groups.get(key).push(finding);
    else groups.set(key, [finding]);
  }
  return [...groups.values()].map((alike) => ({ ...alike[0], source: list(alike.flatMap((one) => one.source ?? [])) }));
}

function list(names) {
  if (names.length > 4) return `${names.slice(0, 3).join(", ")} and ${names.length - 3} more`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0];
}

function about({ name, source }) {
  return name.replaceAll("_", " ") + (source ? ` of ${source}: ` : ": ");
}

function showState(look, headline, items) {
  byId("state").className = look;
  // The headline is written only when it changes, because screen readers read each change aloud.
  if (byId("headline").textContent !== headline) byId("headline").textContent = headline;
  byId("findings").replaceChildren(...items);
  byId("live").classList.toggle("stale", look === "gone");
}

function drawTiles(moment) {
  const { status } = moment;
  const ids = moment.ids.reduce((total, n) => total + (n ?? 0), 0);
  // A ticket counter has no full rate.
  const most = status.sources.reduce((total, source) => total + (source.ids_per_second ?? Infinity), 0);
  const waiting = status.sources.reduce((total, source) => total + source.waiting_requests, 0);
  const { open, max } = status.connections;
  const refused = status.connections.refused;
  const { answers: asked, errors: refusedLately } = status.last_minute;
  const known = moment.requests !== null;
  const percent = (100 * ids) / most;
  const tiles = [
    ["IDs per second", known ? rate(ids) : "–", known && most < Infinity ? `${percent >= 1 || percent === 0 ? Math.round(percent) : "under 1"} % of ${rate(most)}` : " "],
    ["Requests per second", known ? rate(moment.requests) : "–", waiting > 0 ? `${count(waiting)} ${waiting === 1 ? "waits" : "wait"} now` : "no request waits"],
    ["Refused, last minute", asked > 0 ? `${+((100 * refusedLately) / asked).toPrecision(2)} %` : "–", asked > 0 ? `${count(refusedLately)} of ${some(asked, "request")}` : "no request"],
    ["99 % answered within", duration(moment.latency[1]), "of the last 5 s"],
    ["Connections", count(open), `of ${count(max)}${refused > 0 ? `; ${count(refused)} refused` : ""}${frontEnds(status)}`],
  ];
  byId("tiles").replaceChildren(
    ...tiles.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("small", {}, more)))),
  );
}

// If clients can speak several protocols, returns the connections of each protocol that has any.
function frontEnds({ protocols = [] }) {
  const used = protocols.filter(({ connections }) => connections > 0);
  return protocols.length > 1 && used.length > 0 ? `; ${used.map(({ name, connections }) => `${name} ${count(connections)}`).join(", ")}` : "";
}

function drawSources(moment) {
  const { status } = moment;
  const rows = status.sources.map((source, i) => {
    const items = source.facts.map((fact) => make("li", {}, fact));
    const ids = moment.ids[i];
    const isTicket = source.kind === "ticket";
    const each = `${ids === null ? "–" : rate(ids)}${isTicket ? "" : ` of ${rate(source.ids_per_second)}`} IDs/s`;
    const what = `${some(source.ids, "ID")} in ${some(source.requests, "request")} since the start${source.refused > 0 ? `, ${count(source.refused)} refused` : ""}`;
    return make(
      "div",
      { class: "source" },
      make("h4", {}, source.name),
      make("ul", {}, ...items),
      make("span", { class: "rate" }, each),
      make("p", {}, what),
    );
  });
  byId("sources").replaceChildren(...rows);
}

// Draws the identities that have ever connected, the busiest first.
function drawIdentities(status) {
  const all = (identity) => Object.values(identity.ids).reduce((total, ids) => total + ids, 0);
  const known = status.identities.filter((identity) => identity.connected > 0).sort((a, b) => all(b) - all(a));
  const rows = known.map((identity) => {
    const limit = identity.rate === null ? "" : ` · at most ${count(identity.rate)} IDs/s`;
    const drawn = Object.entries(identity.ids).map(([source, ids]) => `${count(ids)} of ${source}`);
    const met = [["denied", identity.denied], ["slowed", identity.slowed]].filter(([, n]) => n > 0).map(([what, n]) => ` · ${what} ${times(n)}`);
    const what = `${drawn.join(", ") || "no IDs"} · ${some(identity.connections, "connection")}${met.join("")}${limit}`;
    return make("div", { class: "source" }, make("h4", {}, identity.name), make("p", {}, what));
  });
  byId("identities-card").hidden = rows.length === 0;
  byId("identities").replaceChildren(...rows);
}

function times(n) {
  return n === 0 ? "never" : n === 1 ? "once" : `${count(n)} times`;
}

// Draws the facts that the daemon's status has in words.
function drawFacts(status) {
  const rows = status.facts.flatMap(({ name, text }) => [make("dt", {}, name), make("dd", {}, text)]);
  byId("facts").replaceChildren(...rows);
  byId("who").textContent =
    `${status.instance} · version ${status.version} · up ${duration(status.uptime_s)} · ${some(status.shards, "shard")}, ${status.order} order`;
}

// ---- requests

let heard_ms = null;
let timer = null;
let historyAt_s = -Infinity;

async function get(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (!response.ok) throw new Error(`it answers ${response.status} ${response.statusText}`);
  return response.json();
}

async function ask() {
  clearTimeout(timer);
  const begun = performance.now();
  try {
    note(await get("status"));
    heard_ms = Date.now();
    if (seen.at(-1).at_s - historyAt_s >= HISTORY_PERIOD_S) {
      takeHistory(await get("history"));
      historyAt_s = seen.at(-1).at_s;
    }
    draw();
  } catch (error) {
    const since = heard_ms === null ? "and has not been reached since this page was opened" : `last heard from at ${new Date(heard_ms).toLocaleTimeString()}`;
    const reason = error.name === "TimeoutError" ? "it does not answer" : error.message.startsWith("it ") ? error.message : "nothing answers at its address";
    const advice = make("li", {}, `${reason}. See whether it runs: systemctl status snowbank, journalctl -u snowbank. This page goes on trying.`);
    showState("gone", `The daemon cannot be reached, ${since}`, [advice]);
    document.title = "? Snowbank";
  }
  if (!document.hidden) timer = setTimeout(ask, Math.max(100, PERIOD_MS - (performance.now() - begun)));
}

function draw() {
  const moment = seen.at(-1);
  if (!moment) return;
  drawState(moment.status);
  drawTiles(moment);
  drawSources(moment);
  drawIdentities(moment.status);
  drawFacts(moment.status);
  charts.forEach((chart) => chart.draw());
}

byId("spans").append(
  ...SPANS.map((one) => {
    const button = make("button", { type: "button", "aria-pressed": one === span }, one.name);
    button.addEventListener("click", () => {
      span = one;
      for (const other of byId("spans").children) other.setAttribute("aria-pressed", other === button);
      charts.forEach((chart) => chart.draw());
    });
    return button;
  }),
);
byId("charts").append(...charts.map((chart) => chart.node));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else ask();
});
// The charts are drawn in the next frame, because drawing may change the size again.
new ResizeObserver(() => requestAnimationFrame(() => charts.forEach((chart) => chart.draw()))).observe(byId("charts"));
ask();
