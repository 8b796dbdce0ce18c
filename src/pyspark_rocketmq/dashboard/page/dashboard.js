"use strict";
// Asks for the state every two seconds and draws it. Everything that is shown is set as text, never as HTML.

const EVERY_MS = 2000;
const MOST_QUEUES = 11;
// Told apart with any kind of colour vision, in both themes; the names are those of the phases of a batch.
const COLOURS = {
  light: ["#3457d5", "#d5602b", "#1b8a6b", "#a23b9e", "#b08300", "#2a8fbd", "#c2334d", "#6b7280", "#5b3fb5", "#57791f", "#8a5a3c", "#444c5e"],
  dark: ["#8ba4ff", "#ffa066", "#4fd1a8", "#e08be0", "#f0c546", "#6cc8f0", "#ff8a9a", "#aab2c5", "#b9a3ff", "#b3d465", "#d8a888", "#d5dae6"],
};
const charts = new Map();

function theme() { return document.documentElement.dataset.theme; }

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "light" : "dark";
  for (const chart of charts.values()) chart.plot.destroy();
  charts.clear();
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const count = (value) => value == null ? "–" : Math.round(value).toLocaleString("en");
const size = (bytes) => bytes >= 1 << 20 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : `${count(bytes / 1024)} KiB`;

function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} days`;
}

// --- charts ---

function draw(key, host, title, names, columns, stacked) {
  const width = Math.max(280, host.clientWidth || 420);
  const old = charts.get(key);
  if (old && old.names.join() === names.join() && old.width === width) {
    old.plot.setData(stacked ? stack(columns) : columns);
    if (old.host !== host) { host.append(...old.nodes); old.host = host; }
    return;
  }
  if (old) old.plot.destroy();
  const style = getComputedStyle(document.documentElement);
  const quiet = style.getPropertyValue("--quiet"), line = style.getPropertyValue("--line"), card = style.getPropertyValue("--card");
  const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui" };
  const series = names.map((name, at) => {
    const colour = COLOURS[theme()][at % COLOURS.light.length];
    const own = (plot, value, _, index) => index == null ? "–" : count(columns_of(key)[at + 1][index]);
    return { label: name, stroke: stacked ? card : colour, width: stacked ? 1 : 2, fill: stacked ? colour : undefined, value: own, points: { show: columns[0].length < 2 } };
  });
  const options = {
    width, height: 190, series: [{ value: (_, at) => at == null ? "–" : new Date(at * 1000).toLocaleTimeString() }, ...series],
    axes: [axis, { ...axis, size: 62, values: (_, ticks) => ticks.map(count) }],
    scales: { y: { range: (_, __, top) => [0, Math.max(1, top * 1.08)] } },
    cursor: { drag: { x: false, y: false } },
  };
  const heading = element("h3", {}, title), place = element("div");
  host.append(heading, place);
  const plot = new uPlot(options, stacked ? stack(columns) : columns, place);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", title);
  charts.set(key, { plot, names, width, host, nodes: [heading, place] });
}

const latest = new Map();
function columns_of(key) { return latest.get(key); }

// The last name is drawn first and highest, so that each area shows what its own part adds.
function stack([times, ...parts]) {
  const sums = parts.map((part) => part.slice());
  for (let at = sums.length - 2; at >= 0; at--) sums[at] = sums[at].map((value, index) => value + sums[at + 1][index]);
  return [times, ...sums];
}

function lines(key, host, title, names, columns, stacked = false) {
  latest.set(key, columns);
  draw(key, host, title, names, columns, stacked);
}

// --- queries ---

const lagOf = (batch) => Object.values(batch.lag).reduce((sum, each) => sum + each, batch.other_lag);

// Kept from one look to the next: what a reader opened stays open.
const failures = new Map();
function failure(run) {
  const known = failures.get(run.runId);
  if (known && known.trace === run.trace) return known.node;
  const node = run.trace
    ? element("details", { class: "failure" }, element("summary", { class: "bad" }, run.reason), element("pre", { tabindex: "0" }, run.trace))
    : element("p", { class: "bad" }, run.reason || "no cause is known");
  failures.set(run.runId, { trace: run.trace, node });
  return node;
}

// An element that is moved to another place loses the focus and its scroll position: this returns what restores them.
function rememberPlace() {
  const focused = document.activeElement, scrolled = [...document.querySelectorAll(".failure pre")].map((each) => [each, each.scrollTop, each.scrollLeft]);
  return () => {
    for (const [each, top, left] of scrolled) { each.scrollTop = top; each.scrollLeft = left; }
    if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  };
}

function queryCard(run, now) {
  const last = run.batches[run.batches.length - 1];
  const state = !run.ended ? "running" : !run.failed ? "ended" : run.restarted ? "failed, started again since" : "failed";
  const card = element("article", { "data-run": run.runId, "aria-label": `query ${run.name || run.queryId}` });
  card.append(element("div", { class: "head" },
    element("h2", {}, run.name || "query without a name"),
    element("span", { class: state === "running" ? "good" : state === "failed" ? "bad" : "" }, state),
    element("span", { class: "id" }, run.queryId)));
  if (run.failed) card.append(failure(run));
  if (!last) {
    card.append(element("p", { class: "empty" }, "no batch yet"));
    return card;
  }
  const behind = lagOf(last);
  const facts = [
    ...(last.batch_id == null ? [] : [["batch", count(last.batch_id)]]), ["rows/s in", count(last.input_rate)], ["rows/s processed", count(last.processed_rate)],
    ["messages behind", Object.keys(last.lag).length ? count(behind) : "–"], ["last batch", `${ago(now - last.at_ms)} ago`],
  ];
  if (last.state_rows) facts.push(["state", `${count(last.state_rows)} rows, ${size(last.state_bytes)}`]);
  if (last.watermark_ms) facts.push(["watermark", `${ago(now - last.watermark_ms)} behind`]);
  card.append(element("dl", { class: "tiles" }, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
  card.append(element("div", { class: "charts" }));
  return card;
}

function queryCharts(card, run) {
  const host = card.querySelector(".charts");
  if (!host) return;
  const batches = run.batches, times = batches.map((batch) => batch.at_ms / 1000);
  const places = ["rates", "durations", "lag"].map((name) => { const made = element("div", { class: name }); host.append(made); return made; });
  lines(`${run.runId} rates`, places[0], "Rows a second", ["in", "processed"],
    [times, batches.map((b) => b.input_rate), batches.map((b) => b.processed_rate)]);
  const parts = new Map();
  for (const batch of batches) for (const [name, ms] of Object.entries(batch.duration_ms)) parts.set(name, (parts.get(name) || 0) + ms);
  const names = [...parts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  lines(`${run.runId} durations`, places[1], "Where a batch's time goes (ms)", names,
    [times, ...names.map((name) => batches.map((b) => b.duration_ms[name] || 0))], true);
  const queues = new Map();
  for (const batch of batches) for (const [queue, lag] of Object.entries(batch.lag)) queues.set(queue, Math.max(lag, queues.get(queue) || 0));
  const most = [...queues].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_QUEUES).map(([queue]) => queue).sort();
  const columns = most.map((queue) => batches.map((b) => b.lag[queue] ?? null));
  const all = Math.max(queues.size, ...batches.map((b) => b.queues));
  if (all > most.length) {
    const others = (b) => Object.entries(b.lag).reduce((sum, [queue, lag]) => sum + (most.includes(queue) ? 0 : lag), b.other_lag);
    columns.push(batches.map(others));
    most.push(`${all - most.length} others`);
  }
  if (most.length) lines(`${run.runId} lag`, places[2], "Messages behind, by queue", most, [times, ...columns]);
}

// --- the cluster ---

function table(caption, head, rows) {
  const numeric = head.map((_, at) => rows.some((row) => typeof row[at] === "number"));
  const cell = (tag, value, at) => element(tag, numeric[at] ? { class: "number" } : {}, typeof value === "number" ? count(value) : value ?? "");
  const body = rows.length ? rows.map((row) => element("tr", {}, ...row.map((value, at) => cell("td", value, at))))
    : [element("tr", {}, element("td", { class: "empty", colspan: String(head.length) }, "none"))];
  return element("article", {}, element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((name, at) => cell("th", name, at)))), element("tbody", {}, ...body)));
}

const partOf = (name, shown, there) => there > shown.length ? `${name}, the first ${shown.length} of ${count(there)}` : name;

// A group's committed offsets follow its query; without an explanation, the two numbers seem to contradict each other.
function groupsTable(groups, there, queries) {
  const own = new Map();
  for (const run of queries) {
    const last = run.batches[run.batches.length - 1];
    if (!run.ended && last) for (const group of run.groups) own.set(group, (own.get(group) || 0) + lagOf(last));
  }
  const caption = partOf("Groups", groups, there);
  if (!groups.some((g) => own.has(g.group))) return table(caption, ["group", "topics", "behind"], groups.map((g) => [g.group, g.topics, g.lag]));
  const made = table(caption, ["group", "topics", "behind", "its query"], groups.map((g) => [g.group, g.topics, g.lag, own.get(g.group) ?? "–"]));
  made.append(element("p", { class: "note" }, "behind: by the offsets that are committed for the group. A query commits after a batch, at most every " +
    "commitIntervalMs (5 s unless set), so that its group is further behind than the query itself (its query: after its last batch)."));
  return made;
}

function clusterCards(cluster, queries) {
  const made = [];
  if (cluster.away && cluster.away.length) {
    made.push(element("article", { class: "bad", role: "alert" }, ...cluster.away.map((each) =>
      element("p", {}, `the numbers are without ${each.broker}: ${each.cause}`))));
  }
  if (cluster.error) made.push(element("article", { class: "bad" }, cluster.error));
  if (cluster.deadLetters) {
    made.push(element("article", {}, element("dl", { class: "tiles" }, element("div", {},
      element("dt", {}, `dead letters in ${cluster.deadLetters.topic}`), element("dd", {}, count(cluster.deadLetters.messages))))));
  }
  made.push(element("div", { class: "tables" },
    groupsTable(cluster.groups, cluster.there.groups, queries),
    table(partOf("Topics", cluster.topics, cluster.there.topics), ["topic", "queues", "messages"], cluster.topics.map((t) => [t.topic, t.queues, t.messages])),
    table("Brokers", ["broker", "address", "version", "in/s", "out/s", "disk"],
      cluster.brokers.map((b) => [b.broker, b.address, b.version, b.inPerSecond, b.outPerSecond, b.diskRatio == null ? "" : `${Math.round(b.diskRatio * 100)} %`]))));
  return made;
}

// --- the page ---

// Each chart holds its canvas, and listens to the window: those of runs that the server has forgotten go.
function forget(runs) {
  const known = new Set(runs.map((run) => run.runId));
  for (const [key, chart] of charts) {
    if (known.has(key.split(" ")[0])) continue;
    chart.plot.destroy();
    charts.delete(key);
    latest.delete(key);
  }
  for (const runId of failures.keys()) if (!known.has(runId)) failures.delete(runId);
}

function show(state) {
  forget(state.queries);
  const restore = rememberPlace(), queries = document.getElementById("queries"), cards = state.queries.map((run) => queryCard(run, state.now));
  if (state.error) cards.push(element("article", { class: "bad" }, state.error));
  else if (!cards.length && state.nothing) cards.push(element("article", { class: "empty" }, state.nothing));
  queries.replaceChildren(...cards);
  restore();
  state.queries.forEach((run, at) => queryCharts(cards[at], run));
  document.getElementById("cluster").replaceChildren(...(state.cluster ? clusterCards(state.cluster, state.queries) : []));
  const running = state.queries.filter((run) => !run.ended).length, failed = state.queries.filter((run) => run.failed && !run.restarted).length;
  const parts = state.nothing ? [`${running} running`, ...(failed ? [`${failed} failed`] : []), `${state.queries.length - running - failed} ended`] : [];
  parts.push(new Date(state.now).toLocaleTimeString());
  tell(parts.join(" · "));
}

function tell(text, bad = false) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.className = bad ? "bad" : "";
}

async function look() {
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server said ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    tell(`no news: ${error.message}`, true);
  }
  setTimeout(look, EVERY_MS);
}

const preferred = matchMedia("(prefers-color-scheme: dark)");
setTheme(preferred.matches ? "dark" : "light");
preferred.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
if (location.search.includes("token=")) history.replaceState(null, "", location.pathname);
look();
