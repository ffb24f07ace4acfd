// The moving part of the page: draws the records that stand in #records; works out no figure itself.
"use strict";
(() => {
const said = document.getElementById("records");
const at = id => document.getElementById(id);
const COLOURS = {generation: "#4f86e8", training: "#e8912d", weight_sync: "#2fa678"};
const NAMES = {weight_sync: "weight sync"};
const JOBS = ["#4f86e8", "#e8912d", "#2fa678", "#8f7fd6", "#3aa9c4", "#d6568c", "#b58a3c", "#7c8a99"];
const HIDDEN = "#8f7fd6", EXPOSED = "#d6568c";
const MOST_HOSTS = 128;  // drawn one by one; beyond, pods are drawn and opened
const SVG = "http://www.w3.org/2000/svg";
const load = d3.scaleLinear().domain([0, .5, 1]).range(["#5b9bd5", "#e8b12d", "#c23744"]).clamp(true);
const count = d3.format(","), percent = d3.format(".0%");

const data = JSON.parse(said.textContent);
const runs = data.runs;
const state = {t: 0, run: 0, playing: false, pod: null, chosen: null, world: "", from: 0, to: 1};
let shown = [], axis, x, whole, lanes, drawn, queued = false, last = 0;

// --- words ------------------------------------------------------------------------------------
const name = phase => NAMES[phase] || phase;
const seconds = s => s === 0 ? "0 s" : Math.abs(s) >= 1 ? `${s.toFixed(3)} s`
  : Math.abs(s) >= 1e-3 ? `${(1e3 * s).toPrecision(4)} ms` : `${(1e6 * s).toPrecision(4)} µs`;
const bytes = n => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let i = 0;
  while (Math.abs(n) >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${i ? n.toPrecision(4) : n} ${units[i]}`;
};
const rate = bps => `${d3.format(".4~s")(bps)}bit/s`;
const or = (value, show) => value === null || value === undefined ? "–" : show(value);

// --- what is recorded at an instant -----------------------------------------------------------
const run = () => runs[state.run];
const under = (times, t) => Math.max(d3.bisectRight(times, t) - 1, 0);
function epoch(one, t) { return one.circuits ? under(one.circuits.times, t) : 0; }
function held(one, t) { return one.circuits && one.circuits.held[one.circuits.sets[epoch(one, t)]]; }
const rewireAt = (one, t) => one.rewires.find(r => r.programmed_s <= t && t < r.usable_s);
function after(one, rewire) {
  const c = one.circuits;
  return c.held[c.sets[under(c.times, rewire.usable_s)]];
}
function darkPaths(one, t) {  // of the light paths held, those that a rewire under way takes down
  const rewire = one.circuits && rewireAt(one, t);
  if (!rewire) return new Set();
  const stay = new Set(after(one, rewire).paths);
  return new Set(held(one, t).paths.filter(path => !stay.has(path)));
}
const flowing = (one, lane, t) => lane.sends ? level(lane.sends, t) : 0;
function level(steps, t) {
  const i = d3.bisectRight(steps.time, t) - 1;
  return i < 0 ? 0 : steps.count[i];
}
function shares(one, t) {  // of each directed cable, or null where no record covers the instant
  if (!one.load) return null;
  const i = d3.bisectRight(one.load.edges, t) - 1;
  if (i < 0 || i >= one.load.edges.length - 1) return () => 0;
  const wide = one.load.edges.length - 1;
  return link => one.bytes ? one.bytes[link * wide + i] / one.load.levels : 0;
}
const busiest = (share, link) => Math.max(share(2 * link), share(2 * link + 1));
function flowsAt(one, t) {
  const start = data.flows.start_s[one.column], finish = data.flows.finish_s[one.column], found = [];
  for (let i = 0; i < start.length; i++) if (start[i] <= t && t < finish[i]) found.push(i);
  return found;
}
const flowName = i => `flow ${data.flows.id[i]} ${data.flows.hosts[data.flows.src[i]]} → ${data.flows.hosts[data.flows.dst[i]]}`;
async function unpack(one) {
  if (!one.load) return;
  if (!window.DecompressionStream) { one.load = null; return; }  // a browser of before 2023
  const raw = Uint8Array.from(atob(one.load.share), c => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  one.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
}

// --- the lanes --------------------------------------------------------------------------------
const LANE = 22, HEAD = 20, STRIP = 8, GAP = 10;
function height(one) { return HEAD + LANE * one.lanes.length + (one.rewires.length ? STRIP : 0) + GAP; }
function drawLanes() {
  const place = at("lanes"), width = Math.max(place.clientWidth, 280), left = width < 520 ? 8 : 132;
  const total = d3.sum(shown, height);
  d3.select(place).selectAll("svg").remove();
  lanes = d3.select(place).append("svg").attr("viewBox", `0 0 ${width} ${total + 26}`)
    .attr("role", "slider").attr("tabindex", 0).attr("aria-label", "time of the clock")
    .attr("aria-valuemin", 0).attr("aria-valuemax", whole[1]);
  const defs = lanes.append("defs");
  for (const [id, colour] of [["hatch-hidden", HIDDEN], ["hatch-exposed", EXPOSED]]) {
    const p = defs.append("pattern").attr("id", id).attr("width", 4).attr("height", 4)
      .attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
    p.append("rect").attr("width", 4).attr("height", 4).attr("fill", colour).attr("opacity", .35);
    p.append("rect").attr("width", 2).attr("height", 4).attr("fill", colour);
  }
  defs.append("clipPath").attr("id", "inside").append("rect").attr("x", left).attr("width", width - left - 8)
    .attr("height", total);
  axis = d3.scaleLinear().domain([state.from, state.to]).range([left, width - 8]);
  x = axis;
  let y = 0;
  for (const one of shown) {
    const group = lanes.append("g").datum(one).attr("class", "row").attr("transform", `translate(0,${y})`);
    group.append("rect").attr("class", "back").attr("width", width).attr("height", height(one) - 4).attr("fill", "transparent");
    group.append("text").attr("class", "strong lane-name").attr("x", 2).attr("y", 14).text(one.label)
      .on("click", () => choose(runs.indexOf(one)));
    group.append("text").attr("x", width - 8).attr("y", 14).attr("text-anchor", "end").text(caption(one));
    one.lanes.forEach((lane, i) => {
      if (left > 100) group.append("text").attr("x", left - 6).attr("y", HEAD + LANE * i + 15)
        .attr("text-anchor", "end").text(laneName(lane));
      const inside = group.append("g").attr("clip-path", "url(#inside)").append("g").attr("transform", `translate(0,${HEAD + LANE * i})`);
      for (const [key, alpha] of [["computes", .35], ["sends", .95]]) if (lane[key])
        inside.append("path").datum(lane[key]).attr("class", "area").attr("fill", colour(lane)).attr("opacity", alpha)
          .append("title").text(`${laneName(lane)}, ${key === "sends" ? "flows" : "computing"}: ${count(lane[key].rows)} rows, ${seconds(lane[key].seconds)} with any`);
    });
    const strip = group.append("g").attr("clip-path", "url(#inside)").append("g").attr("transform", `translate(0,${HEAD + LANE * one.lanes.length})`);
    strip.selectAll("g").data(one.rewires).join("g").attr("class", "over-dark")
      .on("click", (event, r) => { event.stopPropagation(); read("rewire", one.rewires.indexOf(r), one); })
      .each(function(r) {
        for (const part of ["hidden", "exposed"]) d3.select(this).append("rect").attr("class", part)
          .attr("height", STRIP).attr("fill", `url(#hatch-${part})`);
        d3.select(this).append("title").text(rewireWords(r));
      });
    y += height(one);
  }
  lanes.append("g").attr("class", "axis").attr("transform", `translate(0,${total})`);
  lanes.append("line").attr("class", "cursor").attr("y1", 0).attr("y2", total);
  lanes.call(d3.drag().filter(event => !event.button).on("start drag", event => move(x.invert(event.x))));
  lanes.on("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey) return;  // the page scrolls
    event.preventDefault();
    zoomBy(event.deltaY > 0 ? 1.25 : .8, x.invert(d3.pointer(event, lanes.node())[0]));
  }, {passive: false});
  scaleLanes();
}
const laneName = lane => [data.jobs[lane.job], name(lane.phase)].filter(Boolean).join(" ");
const colour = lane => data.jobs.length > 1 ? JOBS[lane.job % JOBS.length] : COLOURS[lane.phase] || "#8f7fd6";
function caption(one) {
  const error = one.fidelity && one.fidelity.median_error !== null
    ? `, ${percent(one.fidelity.median_error)} from simulated in the median` : "";
  return `${one.engine === "emulate" ? "real packets" : "simulated"}${error}, ${seconds(one.step_s)}`;
}
function scaleLanes() {
  x.domain([state.from, state.to]);
  const area = d3.area().curve(d3.curveStepAfter);
  lanes.selectAll(".area").attr("d", steps => {
    const top = d3.max(steps.count) || 1;
    return area.x((_, i) => x(steps.time[i])).y0(LANE - 3).y1(c => LANE - 3 - (LANE - 6) * c / top)(steps.count);
  });
  lanes.selectAll(".over-dark").each(function(r) {
    const wait = r.usable_s - (r.exposed_s || 0);  // flows stand still from here on
    const spans = {hidden: [r.requested_s, wait], exposed: [wait, r.usable_s]};
    for (const part in spans) d3.select(this).select("." + part).attr("x", x(spans[part][0]))
      .attr("width", spans[part][1] > spans[part][0] ? Math.max(x(spans[part][1]) - x(spans[part][0]), 1.5) : 0);
  });
  const small = x.range()[1] < 520;
  lanes.select(".axis").call(d3.axisBottom(x).ticks(small ? 4 : 9).tickFormat(t => `${+t.toPrecision(9)} s`));
}

// --- the fabric -------------------------------------------------------------------------------
const W = 640, H = 300, PAD = 26;
function groups(one) {  // what is drawn: nodes, or pods where they are too many
  const big = one.gpus > MOST_HOSTS;
  const key = node => !big || node[3] === state.pod ? "n" + node[0] : node[3] >= 0 ? "p" + node[3] : "t" + node[2];
  const found = new Map();
  one.nodes.forEach((node, i) => {
    const id = key(node);
    if (!found.has(id)) found.set(id, {id, nodes: [], x: 0, y: 0});
    found.get(id).nodes.push(i);
  });
  for (const g of found.values()) {
    g.x = d3.mean(g.nodes, i => one.nodes[i][5]);
    g.y = d3.mean(g.nodes, i => one.nodes[i][6]);
    g.node = g.id[0] === "n" ? one.nodes[g.nodes[0]] : null;
    g.pod = g.id[0] === "p" ? +g.id.slice(1) : null;
    g.name = g.node ? g.node[0] : g.pod !== null ? `pod ${g.pod + 1}` : `${g.nodes.length} ${g.id.slice(1)}`;
  }
  if (big) arrange([...found.values()]);
  return found;
}
function arrange(list) {  // an opened pod spreads over the width, the other pods stand below it
  const own = list.filter(g => g.node), pods = list.filter(g => g.pod !== null);
  pods.sort((a, b) => a.pod - b.pod).forEach((g, i) => {
    g.x = (i % 24 + .5) / Math.min(pods.length, 24);
    g.y = -.08 * Math.floor(i / 24);
  });
  const [low, high] = d3.extent(own, g => g.x), top = d3.max(own, g => g.y) || 1;
  for (const g of own) {
    g.x = high > low ? .03 + .94 * (g.x - low) / (high - low) : .5;
    g.y = .25 + .5 * g.y / top;
  }
  list.filter(g => !g.node && g.pod === null).forEach((g, i, all) => { g.x = (i + .5) / all.length; g.y = 1; });
}
function drawFabric() {
  const place = d3.select("#fabric"), one = run();
  place.selectAll("*").remove();
  drawn = {cables: [], circle: null};
  if (one.nodes.length) drawCables(place, one);
  if (one.circuits) drawCircle(place, one);
  keys(one);
}
function drawCables(place, one) {
  const box = groups(one), of = new Map();
  for (const g of box.values()) for (const i of g.nodes) of.set(i, g);
  const joined = new Map();
  one.links.forEach((link, i) => {
    const a = of.get(link[0]), b = of.get(link[1]);
    if (a === b) return;
    const id = a.id < b.id ? a.id + "|" + b.id : b.id + "|" + a.id;
    if (!joined.has(id)) joined.set(id, {id, a, b, links: []});
    joined.get(id).links.push(i);
  });
  const low = d3.min(box.values(), g => g.y), high = d3.max(box.values(), g => g.y);
  const px = g => PAD + (W - 2 * PAD) * g.x, py = g => H - PAD - (H - 2 * PAD) * (g.y - low) / (high - low || 1);
  const svg = place.append("svg").attr("class", "cables").attr("viewBox", `0 0 ${W} ${H}`)
    .attr("role", "img").attr("aria-label", `cables of ${one.label}, coloured by load`);
  const list = [...joined.values()];
  const d = c => `M${px(c.a)},${py(c.a)}L${px(c.b)},${py(c.b)}`;
  const cable = svg.append("g").selectAll("path").data(list).join("path").attr("class", "cable").attr("d", d);
  svg.append("g").selectAll("path").data(list).join("path").attr("class", "hit").attr("d", d)
    .on("click", (_, c) => read("cable", c.id)).append("title").text(c => cableName(one, c));
  drawn.cables = list;
  drawn.cable = cable;
  const spot = svg.append("g").selectAll("g").data([...box.values()]).join("g")
    .attr("transform", g => `translate(${px(g)},${py(g)})`);
  spot.append("circle").attr("class", g => `node ${g.node ? g.node[1] : "group"}`)
    .attr("r", g => g.node ? g.node[1] === "host" ? (box.size > 150 ? 2.2 : 3.2) : 6 : 9)
    .on("click", (_, g) => g.pod !== null ? open(g.pod) : read("node", g.id)).append("title").text(g => g.name);
  const widths = d3.rollup(box.values(), all => all.length, g => Math.round(py(g)));
  spot.filter(g => (!g.node || g.node[1] !== "host") && widths.get(Math.round(py(g))) <= 26)
    .append("text").attr("y", g => g.node ? -9 : -12).attr("text-anchor", "middle").text(g => g.name);
  if (state.pod !== null) svg.append("text").attr("class", "strong lane-name").attr("x", 4).attr("y", 14)
    .text(`◀ all pods (pod ${state.pod + 1} is open)`).on("click", () => open(null));
  drawn.box = box;
}
const cableName = (one, c) => c.links.length === 1 ? `cable ${one.links[c.links[0]][2]}` : `${count(c.links.length)} cables ${c.a.name} – ${c.b.name}`;
function spots(one) {  // racks on a circle, or pods where racks are too many
  const racks = one.circuits.racks, pod = new Map(one.nodes.map(n => [n[0], n[3]]));
  const byPod = racks.length > 64 && racks.every(r => pod.get(r) >= 0);
  const names = byPod ? [...new Set(racks.map(r => pod.get(r)))] : racks;
  const turn = i => 2 * Math.PI * (i + .5) / names.length - Math.PI / 2;
  const place = new Map(names.map((n, i) => [n, [Math.cos(turn(i)), Math.sin(turn(i))]]));
  return {byPod, names, place, of: rack => place.get(byPod ? pod.get(racks[rack]) : racks[rack]),
    name: n => byPod ? `${n + 1}` : n};
}
function drawCircle(place, one) {
  const svg = place.append("svg").attr("class", "circle").attr("viewBox", "-150 -150 300 300")
    .attr("role", "img").attr("aria-label", `light paths of ${one.label} at this instant`);
  const ring = spots(one), R = 112;
  drawn.circle = {paths: svg.append("g"), ring, R, epoch: -1};
  const spot = svg.append("g").selectAll("g").data(ring.names).join("g")
    .attr("transform", n => `translate(${ring.place.get(n).map(v => v * R)})`);
  spot.append("circle").attr("r", ring.names.length > 40 ? 2.5 : 5).attr("class", "node eps")
    .on("click", (_, n) => ring.byPod ? open(n) : read("node", "n" + n)).append("title").text(n => `${ring.byPod ? "pod " : ""}${ring.name(n)}`);
  if (ring.names.length <= 64) spot.append("text").attr("text-anchor", "middle").attr("dy", 4)
    .attr("transform", n => `translate(${ring.place.get(n).map(v => v * 17)})`).text(ring.name);
}
function chord(ring, R, path, planes) {
  const [a, b] = [ring.of(path[0]), ring.of(path[1])].map(p => [p[0] * R, p[1] * R]);
  const mid = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2], along = [b[0] - a[0], b[1] - a[1]];
  const bend = .14 * (Math.max(path[2], 0) % 4 - 1.5);
  const c = [.35 * mid[0] - bend * along[1], .35 * mid[1] + bend * along[0]];
  return `M${a}Q${c} ${b}`;
}
function drawPaths(one) {
  const {paths, ring, R} = drawn.circle, now = held(one, state.t);
  const group = paths.selectAll("g").data(now.paths, i => i).join(enter => {
    const g = enter.append("g");
    g.append("path").attr("class", "path").attr("d", i => chord(ring, R, one.circuits.paths[i]));
    g.append("path").attr("class", "hit").attr("d", i => chord(ring, R, one.circuits.paths[i]))
      .on("click", (_, i) => read("path", i)).append("title").text(i => pathName(one, i));
    return g;
  });
  group.attr("data-path", i => i);
}
const pathName = (one, i) => {
  const [a, b, plane] = one.circuits.paths[i];
  return `light path ${one.circuits.racks[a]} – ${one.circuits.racks[b]}${plane >= 0 ? `, plane ${plane}` : ""}`;
};
function keys(one) {
  const found = [];
  if (one.load) found.push(["#5b9bd5", "a little load"], ["#e8b12d", "half"], ["#c23744", "full"]);
  if (one.circuits) found.push([HIDDEN, "rewire hidden: no flow waits (hatched)"], [EXPOSED, "rewire exposed: a flow waits (hatched)"]);
  if (data.jobs.length > 1) data.jobs.forEach((job, i) => found.push([JOBS[i % JOBS.length], job]));
  d3.select("#keys").selectAll("span").data(found).join("span").style("--c", k => k[0]).text(k => k[1]);
}
function paint() {
  const one = run(), share = shares(one, state.t), now = held(one, state.t);
  const lit = new Set(), dark = darkPaths(one, state.t);
  if (now) for (const p of now.paths) if (!dark.has(p)) for (const link of one.circuits.paths[p][3]) lit.add(link >> 1);
  const optical = link => one.nodes[one.links[link][0]][1] === "ocs" || one.nodes[one.links[link][1]][1] === "ocs";
  if (drawn.cable) drawn.cable.each(function(c) {
    const most = share ? d3.max(c.links, link => busiest(share, link)) : 0;
    const unlit = now && c.links.every(link => optical(link) && !lit.has(link));
    this.style.stroke = most > 0 ? load(most) : "";
    this.style.strokeWidth = most > 0 ? 2.2 : "";
    this.setAttribute("class", `cable${most > 0 ? "" : " idle"}${unlit ? " unlit" : ""}${state.chosen && state.chosen.key === c.id ? " chosen" : ""}`);
  });
  if (drawn.circle) {
    drawPaths(one);
    drawn.circle.paths.selectAll("g").each(function(i) {
      const most = share ? d3.max(one.circuits.paths[i][3], link => busiest(share, link >> 1)) : 0;
      const line = this.firstChild;
      line.setAttribute("class", `path${dark.has(i) ? " dark" : ""}${state.chosen && state.chosen.key === i ? " chosen" : ""}`);
      line.style.stroke = most > 0 ? load(most) : "var(--muted)";
    });
  }
}

// --- reading ------------------------------------------------------------------------------------
function read(kind, key, one) {
  if (one) choose(runs.indexOf(one));
  state.chosen = {kind, key};
  draw();
}
const rewireWords = r => `rewire ${r.epoch} for ${r.phase || "a stage"}: requested ${r.requested_s.toFixed(6)} s, programmed ${r.programmed_s.toFixed(6)} s, `
  + `dark until ${r.dark_until_s.toFixed(6)} s, usable ${r.usable_s.toFixed(6)} s; ${count(r.circuits_changed)} circuits change; `
  + `${seconds(r.exposed_s || 0)} exposed, ${seconds(r.hidden_s || 0)} hidden; ${bytes(r.lost_bytes)} lost${r.why ? `; ${r.why}` : ""}`;
function reading() {
  const one = run(), {kind, key} = state.chosen || {}, share = shares(one, state.t);
  const both = link => share ? `${percent(share(2 * link))} out, ${percent(share(2 * link + 1))} back` : "load not in this page";
  if (kind === "rewire") return one.rewires[key] && rewireWords(one.rewires[key]);
  if (kind === "cable") {
    const c = drawn.cables.find(c => c.id === key);
    if (!c) return null;
    return c.links.slice(0, 6).map(i => `cable ${one.links[i][2]}, ${rate(one.links[i][3])}: ${both(i)}`).join("; ")
      + (c.links.length > 6 ? `; and ${count(c.links.length - 6)} more, the busiest at ${share ? percent(d3.max(c.links, l => busiest(share, l))) : "–"}` : "");
  }
  if (kind === "path" && one.circuits) {
    const path = one.circuits.paths[key], on = path && held(one, state.t).paths.includes(key);
    if (!path) return null;
    return `${pathName(one, key)} is ${on ? darkPaths(one, state.t).has(key) ? "dark" : "lit" : "not there"} now; over `
      + path[3].map(l => `${one.links[l >> 1][2]} (${share ? percent(share(l)) : "–"})`).join(", ");
  }
  if (kind === "node") return nodeWords(one, key);
  if (kind === "flow") return flowWords(one, key);
  return null;
}
function nodeWords(one, id) {
  const g = drawn.box && drawn.box.get(id);
  if (!g || !g.node) return null;
  const [node, what, tier, pod] = g.node;
  const list = flowsAt(one, state.t).filter(i => [data.flows.src[i], data.flows.dst[i]].some(h => data.flows.hosts[h] === node));
  const sends = what === "host" ? `; ${count(list.length)} flows now${list.length ? ": " + list.slice(0, 5).map(i => flowWords(one, i)).join("; ") : ""}` : "";
  const mine = what === "ocs" && one.circuits ? `; holds ${held(one, state.t).circuits.map(c => one.circuits.names[c]).filter(c => c.startsWith(node + ":")).join(" ") || "no circuit"}` : "";
  return `${node}: ${what === "host" ? "GPU" : what === "ocs" ? "optical circuit switch" : "packet switch"}, ${tier}${pod >= 0 ? `, pod ${pod + 1}` : ""}${mine}${sends}`;
}
const flowWords = (one, i) => `${flowName(i)}, ${bytes(data.flows.bytes[i])}, ${name(data.flows.phases[data.flows.phase[i]])} ${data.flows.labels[data.flows.label[i]]}, `
  + `from ${data.flows.start_s[one.column][i].toFixed(6)} to ${data.flows.finish_s[one.column][i].toFixed(6)} s`;

// --- figures of the instant -----------------------------------------------------------------------
const phasesAt = (one, t) => one.phases.filter(p => p.begin_s <= t && t < p.end_s);
const share = (one, t) => one.step_s > 0 ? Math.min(t / one.step_s, 1) : 1;  // of the run that has passed
const LIVE = [
  ["clock", (one, t) => seconds(Math.min(t, one.step_s)) + (t >= one.step_s ? ", done" : "")],
  ["of", one => seconds(one.step_s)],
  ["now", (one, t) => [...new Set(phasesAt(one, t).map(p => name(p.phase)))].join(", ") || "–"],
  ["flows in flight", (one, t) => count(d3.sum(one.lanes, lane => flowing(one, lane, t)))],
  ["rewires so far", (one, t) => count(one.rewires.filter(r => r.usable_s <= t).length)],
  ["network k$", one => or(one.cost.network_usd, v => count(Math.round(v / 1e3)))],
  ["network kW", one => or(one.cost.network_watts, v => (v / 1e3).toFixed(2))],
  ["network kJ so far", (one, t) => or(one.cost.network_watts, v => (v * Math.min(t, one.step_s) / 1e3).toFixed(2))],
  ["$ so far", (one, t) => or(one.cost.usd_per_step, v => (v * one.steps * share(one, t)).toFixed(4))],
  ["$ a step", one => or(one.cost.usd_per_step, v => v.toFixed(4))],
];
function drawLive() {
  const used = LIVE.filter(([, show]) => shown.some(one => show(one, 0) !== "–") || show === LIVE[2][1]);
  const table = d3.select("#live").html("").append("table");
  const head = table.append("thead").append("tr");
  head.append("th").attr("class", "name").text("at this instant");
  used.forEach(([title]) => head.append("th").text(title));
  const row = table.append("tbody").selectAll("tr").data(shown).join("tr");
  row.append("th").attr("class", "name").text(one => one.label);
  row.selectAll("td").data(one => used.map(([title, show]) => ({one, show, title}))).join("td").attr("data-figure", c => c.title);
}
const fill = () => d3.select("#live").selectAll("td").text(c => c.show(c.one, state.t));
function listing(title, columns, rows, act) {
  const place = d3.select("#tables");
  place.append("h3").text(title);
  const table = place.append("div").attr("class", "scroll").append("table");
  table.append("thead").append("tr").selectAll("th").data(columns).join("th").attr("class", "words").text(c => c);
  const row = table.append("tbody").selectAll("tr").data(rows).join("tr");
  row.selectAll("td").data(cells => cells.slice(0, columns.length)).join("td").attr("class", "words").text(c => c);
  if (act) row.attr("tabindex", 0).style("cursor", "pointer").on("click", (_, cells) => act(cells[columns.length]))
    .on("keydown", (event, cells) => event.key === "Enter" && act(cells[columns.length]));
}
function tables() {  // only while they are open: they are long
  d3.select("#tables").html("");
  if (!document.querySelector("details.tables").open) return;
  const one = run(), t = state.t, share = shares(one, t), c = one.circuits;
  if (c) listing(`Circuits of ${one.label} at ${t.toFixed(6)} s`, ["circuit"], held(one, t).circuits.map(i => [c.names[i]]));
  if (c) listing("Light paths", ["from", "to", "plane", "state"], held(one, t).paths.map(i => [c.racks[c.paths[i][0]], c.racks[c.paths[i][1]], c.paths[i][2], darkPaths(one, t).has(i) ? "dark" : "lit", i]), i => read("path", i));
  const flows = flowsAt(one, t), most = 200;
  listing(`Flows in flight${flows.length > most ? ` (${most} of ${count(flows.length)})` : ""}${data.flows.of > data.flows.id.length ? `; of the ${count(data.flows.id.length)} largest of ${count(data.flows.of)}` : ""}`,
    ["flow", "bytes", "label"], flows.slice(0, most).map(i => [flowName(i), bytes(data.flows.bytes[i]), data.flows.labels[data.flows.label[i]], i]), i => read("flow", i));
  if (share) listing("Cables that carry", ["cable", "rate", "out", "back"], one.links.map((l, i) => [l, i]).filter(([, i]) => busiest(share, i) > 0)
    .sort((a, b) => busiest(share, b[1]) - busiest(share, a[1])).slice(0, most).map(([l, i]) => [l[2], rate(l[3]), percent(share(2 * i)), percent(share(2 * i + 1))]));
  listing("Rewires", ["rewire"], one.rewires.slice(0, most).map((r, i) => [rewireWords(r), i]), i => read("rewire", i));
}

// --- the clock ------------------------------------------------------------------------------------
function draw() {
  queued = false;
  const one = run(), t = state.t;
  lanes.select(".cursor").attr("x1", x(t)).attr("x2", x(t)).style("display", t < state.from || t > state.to ? "none" : null);
  lanes.attr("aria-valuenow", t).attr("aria-valuetext", `${t.toFixed(6)} s`);
  lanes.selectAll(".row").select(".back").attr("class", o => o === one ? "back row-chosen" : "back");
  at("now").textContent = `${t.toFixed(state.to - state.from < 1 ? 6 : 3)} s`;
  const rewire = rewireAt(one, t), phases = phasesAt(one, t);
  at("instant").textContent = `${one.label}${one.optical ? `, policy ${one.policy}` : ""}, routing ${one.routing || "not said"}: `
    + (phases.map(p => name(p.phase) + (one.steps > 1 ? ` of step ${p.step}` : "")).join(", ") || (t >= one.step_s ? "done" : "idle"))
    + (one.circuits ? `; ${count(held(one, t).circuits.length)} circuits, epoch ${epoch(one, t)} from ${one.circuits.times[epoch(one, t)].toFixed(6)} s` : "")
    + (rewire ? `; dark: rewire ${rewire.epoch}, ${count(rewire.circuits_changed)} circuits change` : "");
  paint();
  fill();
  const words = state.chosen && reading();
  at("reading").textContent = words || "Choose a cable, a light path, a GPU, a switch or a rewire to read it.";
  if (!state.playing) settle();
}
function settle() {  // what need not be drawn at every frame
  tables();
  const view = `#run=${state.run}&t=${+state.t.toFixed(9)}&from=${+state.from.toFixed(9)}&to=${+state.to.toFixed(9)}`;
  at("again").textContent = `${data.command || "rfabric report FOLDER"}   then report.html${view}`;
  try { history.replaceState(null, "", view); } catch { /* a page in a frame has no address of its own */ }
}
const soon = () => { if (!queued) { queued = true; requestAnimationFrame(draw); } };
function move(t) { state.t = Math.min(Math.max(t, 0), whole[1]); soon(); }
function choose(i) {
  if (i === state.run || !shown.includes(runs[i])) return;
  Object.assign(state, {run: i, pod: null, chosen: null});
  at("chosen").value = i;
  drawFabric();
  phaseMenu();
  soon();
}
function open(pod) { Object.assign(state, {pod, chosen: null}); drawFabric(); soon(); }
function zoom(from, to) {
  const least = Math.max(whole[1] * 1e-9, 1e-9), wide = Math.min(Math.max(to - from, least), whole[1] || 1);
  state.from = Math.min(Math.max(from, 0), (whole[1] || 1) - wide);
  state.to = state.from + wide;
  scaleLanes();
  soon();
}
function zoomBy(factor, about) { zoom(about - (about - state.from) * factor, about + (state.to - about) * factor); }
function play(on) {
  state.playing = on;
  at("play").textContent = on ? "Pause" : "Play";
  at("play").setAttribute("aria-pressed", on);
  if (!on) { soon(); return; }
  if (state.t >= state.to || state.t < state.from) state.t = state.from;
  last = performance.now();
  requestAnimationFrame(tick);
}
function tick(now) {
  if (!state.playing) return;
  const pace = +at("pace").value, passed = Math.max(now - last, 0) / 1e3;
  last = now;
  state.t = Math.min(state.t + passed * (pace ? (state.to - state.from) / pace : 1), state.to);
  draw();
  if (state.t >= state.to) play(false); else requestAnimationFrame(tick);
}
function events() {
  const one = run(), times = one.phases.flatMap(p => [p.begin_s, p.end_s]);
  if (one.circuits) times.push(...one.circuits.times);
  for (const r of one.rewires) times.push(r.requested_s, r.programmed_s, r.usable_s);
  return [...new Set(times)].sort(d3.ascending);
}
function jump(way) {
  const found = events(), hop = way > 0 ? found.find(t => t > state.t + 1e-12) : found.filter(t => t < state.t - 1e-12).pop();
  if (hop !== undefined) move(hop);
}
function phaseMenu() {
  const one = run(), options = [["all", "the whole run", 0, whole[1]]];
  one.phases.forEach((p, i) => options.push([`p${i}`, `${name(p.phase)}${one.steps > 1 ? `, step ${p.step}` : ""}`, p.begin_s, p.end_s]));
  one.rewires.slice(0, 100).forEach((r, i) => options.push([`r${i}`, `rewire ${r.epoch}`, ...around(r)]));
  d3.select("#zoom").selectAll("option").data(options).join("option").attr("value", o => o[0]).text(o => o[1]);
}
const around = r => { const wide = r.usable_s - r.requested_s || 1e-3; return [r.requested_s - wide, r.usable_s + wide]; };
function show() {  // which runs are on the page: of one world, where there are two
  shown = runs.filter(one => !state.world || one.engine === state.world);
  if (!shown.includes(run())) state.run = runs.indexOf(shown[0]);
  d3.select("#chosen").selectAll("option").data(shown).join("option").attr("value", one => runs.indexOf(one)).text(one => one.label);
  at("chosen").value = state.run;
  drawLanes();
  drawLive();
  drawFabric();
  phaseMenu();
  soon();
}
function worlds() {
  const both = [...new Set(runs.map(one => one.engine))];
  if (both.length < 2) return;
  at("worlds").hidden = false;
  for (const [value, text] of [["", "both"], ["simulate", "simulated"], ["emulate", "real packets"]]) {
    const label = d3.select("#worlds").append("label");
    label.append("input").attr("type", "radio").attr("name", "world").attr("value", value).property("checked", !value)
      .on("change", () => { state.world = value; show(); });
    label.append("span").text(" " + text);
  }
}
const KEYS = {
  " ": () => play(!state.playing), Home: () => move(state.from), End: () => move(state.to), 0: () => zoom(0, whole[1]),
  ArrowLeft: e => e.shiftKey ? jump(-1) : move(state.t - (state.to - state.from) / 200),
  ArrowRight: e => e.shiftKey ? jump(1) : move(state.t + (state.to - state.from) / 200),
  ArrowUp: () => choose(runs.indexOf(shown[shown.indexOf(run()) - 1])), ArrowDown: () => choose(runs.indexOf(shown[shown.indexOf(run()) + 1])),
  "+": () => zoomBy(.5, state.t), "=": () => zoomBy(.5, state.t), "-": () => zoomBy(2, state.t),
};
function listen() {
  at("play").onclick = () => play(!state.playing);
  at("back").onclick = () => jump(-1);
  at("next").onclick = () => jump(1);
  at("chosen").onchange = e => choose(+e.target.value);
  at("zoom").onchange = e => {
    const found = d3.select(e.target.selectedOptions[0]).datum(), pad = found[0][0] === "p" ? .02 * (found[3] - found[2]) : 0;
    zoom(found[2] - pad, found[3] + pad);
    move(found[2]);
  };
  document.querySelector("details.tables").addEventListener("toggle", soon);
  addEventListener("resize", () => { drawLanes(); soon(); });
  addEventListener("hashchange", follow);
  document.addEventListener("keydown", e => {
    const free = [document.body, lanes.node()].includes(document.activeElement);
    if (!free || e.ctrlKey || e.altKey || e.metaKey || !KEYS[e.key]) return;
    e.preventDefault();
    KEYS[e.key](e);
  });
}
function follow() {  // what the address says: #run=1&t=3.5&from=3&to=4
  const words = new URLSearchParams(location.hash.slice(1)), number = key => words.has(key) && isFinite(+words.get(key)) ? +words.get(key) : null;
  if (runs[number("run")] && number("run") !== null) choose(number("run"));
  if (number("from") !== null && number("to") > number("from")) zoom(number("from"), number("to"));
  if (number("t") !== null) move(number("t"));
}
async function begin() {
  runs.forEach((one, i) => { one.column = i; });
  whole = [0, d3.max(runs, one => one.step_s) || 1];
  Object.assign(state, {from: 0, to: whole[1]});
  await Promise.all(runs.map(unpack));
  for (const part of document.querySelectorAll(".clock [hidden]")) if (part.id !== "worlds") part.hidden = false;
  worlds();
  show();
  listen();
  follow();
  document.documentElement.dataset.ready = "yes";
}
begin();
})();
