// The clock: play, scrub, zoom, keys, the address.
const REST = 60; // ms without a drawing, after which the tables and the address follow
let resting;
function headline(one, t) {
  const doing = phasesAt(one, t).map(p => phaseName(one, p, " of ")).join(", "),
    still = waiting(one) ? "not begun" : t >= one.step_s && !one.running ? "done" : "idle";
  const policy = one.optical && one.policy ? `, policy ${one.policy}` : "",
    now = controlled(one) ? "" : `: ${doing || still}`;
  const parts = [`${one.label}${policy}, routing ${one.routing || "not said"}${now}`];
  if (one.circuits) {
    const n = epoch(one, t);
    const since = `epoch ${epochNumber(one, n)} from ${instant(one.circuits.times[n])}`;
    parts.push(`${count(held(one, t).circuits.length)} circuits, ${since}`);
  }
  const r = rewireAt(one, t);
  if (r) parts.push(`dark: rewire ${r.epoch}, ${count(r.circuits_changed)} circuits change`);
  return parts.join("; ");
}
function draw() {
  queued = false;
  const one = run(),
    t = state.t;
  lanes
    .select(".cursor")
    .attr("x1", x(t))
    .attr("x2", x(t))
    .style("display", t < state.from || t > state.to ? "none" : null);
  lanes.attr("aria-valuenow", t).attr("aria-valuetext", `${t.toFixed(6)} s`);
  lanes
    .selectAll(".row")
    .select(".back")
    .attr("class", o => (o === one ? "back row-chosen" : "back"));
  at("now").textContent = `${t.toFixed(state.to - state.from < 1 ? 6 : 3)} s`;
  at("instant").textContent = headline(one, t);
  paint();
  fill();
  const words = state.chosen && reading();
  at("reading").textContent =
    words || "Choose a cable, a light path, a GPU, a switch or a rewire to read it.";
  clearTimeout(resting);
  if (!state.playing) resting = setTimeout(settle, REST);
}
function settle() {
  // what need not be drawn at every frame: a browser takes longer for a new address than for that
  tables();
  const at9 = t => +t.toFixed(9);
  const window = `from=${at9(state.from)}&to=${at9(state.to)}`;
  const only = wanted.size ? `&only=${choiceWords().join(".")}` : "";
  const world = state.world ? `&world=${state.world}` : "";
  const price = state.price === null ? "" : `&price=${state.price}`;
  const view = `#run=${state.run}&t=${at9(state.t)}&${window}${only}${world}${price}`;
  const file = decodeURIComponent(location.pathname.split("/").pop()) || "report.html";
  const there = runs.some(controlled) ? "" : `   then ${file}${view}`;
  at("again").textContent = `${data.command || "rfabric report FOLDER"}${there}`;
  try {
    history.replaceState(null, "", view);
  } catch {
    /* a page in a frame has no address of its own */
  }
}
const soon = () => {
  if (!queued) {
    queued = true;
    requestAnimationFrame(draw);
  }
};
function move(t) {
  state.t = Math.min(Math.max(t, 0), whole[1]);
  soon();
}
function choose(i) {
  if (i === state.run || !shown.includes(runs[i])) return;
  Object.assign(state, {run: i, pod: null, chosen: null});
  at("chosen").value = i;
  drawFabric();
  scaleYours();
  phaseMenu();
  soon();
}
function unfold(pod) {
  Object.assign(state, {pod, chosen: null});
  drawFabric();
  soon();
}
function zoom(from, to) {
  const least = Math.max(whole[1] * 1e-9, 1e-9),
    wide = Math.min(Math.max(to - from, least), whole[1] || 1);
  state.from = Math.min(Math.max(from, 0), (whole[1] || 1) - wide);
  state.to = state.from + wide;
  scaleLanes();
  soon();
}
function zoomBy(factor, about) {
  zoom(about - (about - state.from) * factor, about + (state.to - about) * factor);
}
function play(on) {
  state.playing = on;
  at("play").textContent = on ? "Pause" : "Play";
  at("play").setAttribute("aria-pressed", on);
  if (!on) {
    soon();
    return;
  }
  if (state.t >= state.to || state.t < state.from) state.t = state.from;
  last = performance.now();
  requestAnimationFrame(tick);
}
function tick(now) {
  if (!state.playing) return;
  const pace = +at("pace").value,
    passed = Math.max(now - last, 0) / 1e3;
  last = now;
  state.t = Math.min(state.t + passed * (pace ? (state.to - state.from) / pace : 1), state.to);
  draw();
  if (state.t >= state.to) play(false);
  else requestAnimationFrame(tick);
}
function events() {
  const one = run(),
    times = one.phases.flatMap(p => [p.begin_s, p.end_s]);
  if (one.circuits) times.push(...one.circuits.times);
  for (const r of one.rewires) times.push(r.requested_s, r.programmed_s, r.usable_s);
  return [...new Set(times)].sort(d3.ascending);
}
function jump(way) {
  const times = events(),
    hop =
      way > 0 ? times.find(t => t > state.t + 1e-12) : times.filter(t => t < state.t - 1e-12).pop();
  if (hop !== undefined) move(hop);
}
function phaseMenu() {
  const one = run(),
    options = [["all", "the whole run", 0, whole[1]]];
  one.phases.forEach((p, i) =>
    options.push([
      `p${i}`,
      phaseName(one, p, ", "),
      p.begin_s,
      p.end_s,
    ]),
  );
  one.rewires
    .slice(0, 100)
    .forEach((r, i) => options.push([`r${i}`, `rewire ${r.epoch}`, ...around(r)]));
  d3.select("#zoom")
    .selectAll("option")
    .data(options)
    .join("option")
    .attr("value", o => o[0])
    .text(o => o[1]);
}
const around = r => {
  const wide = r.usable_s - r.requested_s || 1e-3;
  return [r.requested_s - wide, r.usable_s + wide];
};
const ofWorld = one => !state.world || one.engine === state.world;
function show() {
  // which runs are on the page: of one world, where there are two, and as chosen
  if (!runs.some(one => ofWorld(one) && fits(one))) wanted.clear(); // no such run was made
  shown = runs.filter(one => ofWorld(one) && fits(one));
  possible();
  if (!shown.includes(run())) state.run = runs.indexOf(shown[0]);
  d3.select("#chosen")
    .selectAll("option")
    .data(shown)
    .join("option")
    .attr("value", one => runs.indexOf(one))
    .text(one => one.label);
  at("chosen").value = state.run;
  drawLanes();
  drawLive();
  drawFabric();
  phaseMenu();
  soon();
}
const errorWords = one => {
  const {median_error: median, worst_error: worst} = one.fidelity;
  const said = d3.format(".1%");
  return `${one.label} ${said(median)} in the median, ${said(worst)} at worst`;
};
function worlds() {
  const both = [...new Set(runs.map(one => one.engine))];
  const checked = runs.filter(one => one.fidelity && one.fidelity.median_error !== null);
  at("errors").textContent = checked.length
    ? `Packets against simulated: ${checked.map(errorWords).join("; ")}.`
    : "";
  if (both.length < 2) return;
  at("worlds").hidden = false;
  for (const value of ["", ...both]) {
    const text = value ? own(WORLDS, value) || value : both.length > 2 ? "all" : "both";
    const label = d3.select("#worlds").append("label");
    label
      .append("input")
      .attr("type", "radio")
      .attr("name", "world")
      .attr("value", value)
      .property("checked", !value)
      .on("change", () => {
        state.world = value;
        show();
      });
    label.append("span").text(" " + text);
  }
}
function followWorld(world) {
  const radio = [...document.querySelectorAll("#worlds input")].find(i => i.value === world);
  if (!world || !radio) return;
  radio.checked = true;
  state.world = world;
  show();
}
const KEYS = {
  " ": () => play(!state.playing),
  Home: () => move(state.from),
  End: () => move(state.to),
  0: () => zoom(0, whole[1]),
  ArrowLeft: e => (e.shiftKey ? jump(-1) : move(state.t - (state.to - state.from) / 200)),
  ArrowRight: e => (e.shiftKey ? jump(1) : move(state.t + (state.to - state.from) / 200)),
  ArrowUp: () => choose(runs.indexOf(shown[shown.indexOf(run()) - 1])),
  ArrowDown: () => choose(runs.indexOf(shown[shown.indexOf(run()) + 1])),
  "+": () => zoomBy(0.5, state.t),
  "=": () => zoomBy(0.5, state.t),
  "-": () => zoomBy(2, state.t),
};
function listen() {
  at("play").onclick = () => play(!state.playing);
  at("back").onclick = () => jump(-1);
  at("next").onclick = () => jump(1);
  at("pods").onchange = e => unfold(e.target.value === "" ? null : +e.target.value);
  at("chosen").onchange = e => choose(+e.target.value);
  at("zoom").onchange = e => {
    const [key, , from, to] = d3.select(e.target.selectedOptions[0]).datum(),
      pad = key[0] === "p" ? 0.02 * (to - from) : 0;
    zoom(from - pad, to + pad);
    move(from);
  };
  document.querySelector("details.tables").addEventListener("toggle", soon);
  addEventListener("resize", () => {
    drawLanes();
    soon();
  });
  addEventListener("hashchange", follow);
  document.addEventListener("keydown", e => {
    const free = [document.body, lanes.node()].includes(document.activeElement);
    if (!free || e.ctrlKey || e.altKey || e.metaKey || !KEYS[e.key]) return;
    e.preventDefault();
    KEYS[e.key](e);
  });
}
function follow() {
  // what the address says: #run=1&t=3.5&from=3&to=4&world=simulate&price=0
  const words = new URLSearchParams(location.hash.slice(1)),
    number = key => (words.has(key) && isFinite(+words.get(key)) ? +words.get(key) : null);
  followChoices(words.get("only"));
  followWorld(words.get("world"));
  followPrice(number("price"));
  if (runs[number("run")] && number("run") !== null) choose(number("run"));
  if (number("from") !== null && number("to") > number("from")) zoom(number("from"), number("to"));
  if (number("t") !== null) move(number("t"));
}
async function begin() {
  runs.forEach((one, i) => {
    one.column ??= i;
  });
  whole = [0, d3.max([...runs.map(one => one.step_s), ...yoursEnds()]) || 1];
  Object.assign(state, {from: 0, to: whole[1]});
  await Promise.all(runs.map(unpack));
  for (const part of document.querySelectorAll(".clock [hidden]"))
    if (!part.matches("#worlds, .pods")) part.hidden = false;
  worlds();
  choiceMenus();
  show();
  listen();
  follow();
  drawPictures();
  document.documentElement.dataset.ready = "yes";
}
const begun = begin();
