// What was chosen, in words; the figures of the instant; the tables.
function read(kind, key, one) {
  if (one) choose(runs.indexOf(one));
  state.chosen = {kind, key};
  draw();
}
const rewireWords = r =>
  [
    `rewire ${r.epoch} for ${r.phase || "a stage"}: requested ${instant(r.requested_s)}`,
    `programmed ${instant(r.programmed_s)}, dark until ${instant(r.dark_until_s)}`,
    `usable ${instant(r.usable_s)}; ${count(r.circuits_changed)} circuits change`,
    r.exposed_s === null
      ? "whether flows waited is not known"
      : `${seconds(r.exposed_s || 0)} exposed, ${seconds(r.hidden_s || 0)} hidden`,
    `${or(r.lost_bytes, bytes)} lost${r.why ? `; ${r.why}` : ""}`,
  ].join(", ");
function reading() {
  const one = run(),
    {kind, key} = state.chosen || {},
    share = shares(one, state.t);
  const both = link =>
    share
      ? `${percent(share(2 * link))} out, ${percent(share(2 * link + 1))} back`
      : "load not in this page";
  if (kind === "rewire") return one.rewires[key] && rewireWords(one.rewires[key]);
  if (kind === "cable") {
    const c = drawn.cables.find(c => c.id === key);
    if (!c) return null;
    const most = share ? percent(d3.max(c.links, l => busiest(share, l))) : "–";
    return (
      c.links
        .slice(0, 6)
        .map(i => `cable ${one.links[i][2]}, ${rate(one.links[i][3])}: ${both(i)}`)
        .join("; ") +
      (c.links.length > 6 ? `; and ${count(c.links.length - 6)} more, the busiest at ${most}` : "")
    );
  }
  if (kind === "path" && one.circuits) return pathWords(one, key, share);
  if (kind === "node") return nodeWords(one, key);
  if (kind === "flow") return flowWords(one, key);
  if (kind === "yours") return yoursWords(key);
  return null;
}
function pathWords(one, id, share) {
  const now = held(one, state.t).paths,
    dark = darkPaths(one, state.t);
  if (typeof id === "string") {
    const b = drawn.circle && bundles(one, drawn.circle.ring).find(b => b.id === id);
    return b
      ? `${bundleName(one, b)}, ${count(b.paths.filter(i => dark.has(i)).length)} of them dark`
      : `${id}: no light path now`;
  }
  const path = one.circuits.paths[id];
  const lit = !now.includes(id) ? "not there" : dark.has(id) ? "dark" : "lit";
  return (
    path &&
    `${pathName(one, id)} is ${lit} now; over ` +
      path[3].map(l => `${one.links[l >> 1][2]} (${share ? percent(share(l)) : "–"})`).join(", ")
  );
}
function nodeWords(one, id) {
  const g = drawn.box && drawn.box.get(id);
  if (!g || !g.node) return null;
  const [node, what, tier, pod] = g.node,
    {flows} = told(one);
  const list = flowsAt(one, state.t).filter(i =>
    [flows.src[i], flows.dst[i]].some(h => flows.hosts[h] === node),
  );
  const sends =
    what === "host"
      ? `; ${count(list.length)} flows now${
          list.length
            ? ": " +
              list
                .slice(0, 5)
                .map(i => flowWords(one, i))
                .join("; ")
            : ""
        }`
      : "";
  const mine =
    what === "ocs" && one.circuits
      ? `; holds ${
          held(one, state.t)
            .circuits.map(c => one.circuits.names[c])
            .filter(c => c.startsWith(node + ":"))
            .join(" ") || "no circuit"
        }`
      : "";
  const kind = what === "host" ? "GPU" : `${what === "ocs" ? "optical circuit" : "packet"} switch`;
  return `${node}: ${kind}, ${tier}${pod >= 0 ? `, pod ${pod + 1}` : ""}${mine}${sends}`;
}
function flowWords(one, i) {
  const {phases, phase, labels, label, start_s: start, finish_s: finish} = told(one).flows;
  const what = `${name(phases[phase[i]])} ${labels[label[i]]}`;
  const when = `from ${instant(start[one.column][i])} to ${instant(finish[one.column][i])}`;
  return `${flowName(i)}, ${bytes(told(one).flows.bytes[i])}, ${what}, ${when}`;
}

// --- figures of the instant ---
const phasesAt = (one, t) => one.phases.filter(p => p.begin_s <= t && t < p.end_s);
// of the run that has passed
const share = (one, t) => (one.step_s > 0 ? Math.min(t / one.step_s, 1) : 1);
// at the price chosen for the port of an OCS, as it was reckoned when the page was made
const costOf = one => (state.price === null ? one.cost : one.costs[state.price]);
const LIVE = [
  [
    "clock",
    (one, t) =>
      waiting(one)
        ? "not begun"
        : seconds(Math.min(t, one.step_s)) + (t >= one.step_s && !one.running ? ", done" : ""),
  ],
  ["now", (one, t) => [...new Set(phasesAt(one, t).map(p => name(p.phase)))].join(", ") || "–"],
  [
    "flows in flight",
    (one, t) => {
      if (controlled(one)) return "–";
      const most = d3.sum(one.lanes, lane => flowing(lane, t));
      const thinned = one.lanes.some(lane => lane.sends && lane.sends.thinned);
      return (thinned && most ? "≤ " : "") + count(most);
    },
  ],
  ["rewires so far", (one, t) => count(one.rewires.filter(r => r.usable_s <= t).length)],
  ["network k$", one => or(costOf(one).network_usd, thousands)],
  ["network kW", one => or(costOf(one).network_watts, v => d3.format(",.2f")(v / 1e3))],
  [
    "network kJ so far",
    (one, t) =>
      or(costOf(one).network_watts, v => d3.format(",.2f")((v * Math.min(t, one.step_s)) / 1e3)),
  ],
  [
    "$ so far",
    (one, t) => or(costOf(one).usd_per_step, v => d3.format(",.4f")(v * one.steps * share(one, t))),
  ],
  ["$ a step", one => or(costOf(one).usd_per_step, v => d3.format(",.4f")(v))],
];
function drawLive() {
  const used = LIVE.filter(
    ([title, show]) =>
      shown.some(one => show(one, 0) !== "–") || (title === "now" && !shown.every(controlled)),
  );
  const table = d3.select("#live").html("").append("table");
  const head = table.append("thead").append("tr");
  head.append("th").attr("class", "name").text("at this instant");
  used.forEach(([title]) => head.append("th").text(title));
  const row = table.append("tbody").selectAll("tr").data(shown).join("tr");
  row
    .append("th")
    .attr("class", "name")
    .text(one => one.label);
  row
    .selectAll("td")
    .data(one => used.map(([title, show]) => ({one, show, title})))
    .join("td")
    .attr("data-figure", c => c.title);
}
const fill = () =>
  d3
    .select("#live")
    .selectAll("td")
    .text(c => c.show(c.one, state.t));
function listing(title, columns, rows, act) {
  const place = d3.select("#tables");
  place.append("h3").text(title);
  const scroll = place.append("div").attr("class", "scroll").attr("tabindex", 0);
  scroll.attr("role", "group").attr("aria-label", title);
  const table = scroll.append("table");
  table
    .append("thead")
    .append("tr")
    .selectAll("th")
    .data(columns)
    .join("th")
    .attr("class", "words")
    .text(c => c);
  const row = table.append("tbody").selectAll("tr").data(rows).join("tr");
  row
    .selectAll("td")
    .data(cells => cells.slice(0, columns.length))
    .join("td")
    .attr("class", "words")
    .text(c => c);
  if (act)
    row
      .attr("tabindex", 0)
      .style("cursor", "pointer")
      .on("click", (_, cells) => act(cells[columns.length]))
      .on("keydown", (event, cells) => event.key === "Enter" && act(cells[columns.length]));
}
function flowsTitle(now, most) {
  const shown = now > most ? ` (${most} of ${count(now)})` : "";
  const {id, of} = told(run()).flows;
  const kept = of > id.length ? `; of the ${count(id.length)} largest of ${count(of)}` : "";
  return `Flows in flight${shown}${kept}`;
}
function epochRows(one) {
  // each epoch: how many circuits it kept, which are new, and its instant, to go there
  const c = one.circuits;
  return c.times.map((time, n) => {
    const now = c.held[c.sets[n]].circuits,
      before = new Set(n ? c.held[c.sets[n - 1]].circuits : []);
    const fresh = now.filter(i => !before.has(i)),
      most = 40;
    const more = fresh.length > most ? `, and ${count(fresh.length - most)} more` : "";
    const named = fresh.slice(0, most).map(i => c.names[i]).join(", ") + more;
    const kept = count(now.length - fresh.length);
    const epoch = epochNumber(one, n);
    return [epoch, `${time.toFixed(6)} s`, count(now.length), kept, named || "none", time];
  });
}
function tables() {
  // only while they are open: they are long
  d3.select("#tables").html("");
  if (!document.querySelector("details.tables").open) return;
  const one = run(),
    t = state.t,
    share = shares(one, t),
    c = one.circuits;
  if (c)
    listing(
      `Circuits of ${one.label} at ${t.toFixed(6)} s`,
      ["circuit"],
      held(one, t).circuits.map(i => [c.names[i]]),
    );
  if (c)
    listing(
      "Light paths",
      ["from", "to", "plane", "state"],
      held(one, t).paths.map(i => [
        c.racks[c.paths[i][0]],
        c.racks[c.paths[i][1]],
        c.paths[i][2],
        darkPaths(one, t).has(i) ? "dark" : "lit",
        i,
      ]),
      i => read("path", i),
    );
  const most = 200;
  if (c) {
    const rows = epochRows(one),
      kept = rows.length > most ? `, the first ${most} of ${count(rows.length)}` : "";
    listing(
      `Circuits of each epoch${kept}`,
      ["epoch", "from", "circuits", "kept", "new"],
      rows.slice(0, most),
      move,
    );
  }
  const flows = flowsAt(one, t),
    sent = told(one).flows;
  listing(
    flowsTitle(flows.length, most),
    ["flow", "bytes", "label"],
    flows
      .slice(0, most)
      .map(i => [
        flowName(i),
        bytes(sent.bytes[i]),
        sent.labels[sent.label[i]],
        i,
      ]),
    i => read("flow", i),
  );
  if (share)
    listing(
      "Cables that carry",
      ["cable", "rate", "out", "back"],
      one.links
        .map((l, i) => [l, i])
        .filter(([, i]) => busiest(share, i) > 0)
        .sort((a, b) => busiest(share, b[1]) - busiest(share, a[1]))
        .slice(0, most)
        .map(([l, i]) => [l[2], rate(l[3]), percent(share(2 * i)), percent(share(2 * i + 1))]),
    );
  listing(
    "Rewires",
    ["rewire"],
    one.rewires.slice(0, most).map((r, i) => [rewireWords(r), i]),
    i => read("rewire", i),
  );
}
