// A run that is under way: its records come as events, a line each, and the clock follows them.
const REDRAW = 1000; // ms between two drawings: records may come faster than that
const MOST_FAILED = 4; // tries in a row to reach the run's server: then it is gone
const blanks = runs.map(one => (one.directed ? structuredClone(one) : null));
let following = true,
  dirty = false,
  pressed = false,
  shapes = {},
  doing = "";

// --- what a record says -----------------------------------------------------------------------
function blank(i) {
  // an emulation begins, or begins again at half the rates
  const one = Object.assign(runs[i], structuredClone(blanks[i]));
  Object.assign(one, {column: i, running: true, columns: []});
  data.flows.start_s[i] = data.flows.id.map(() => Infinity);
  data.flows.finish_s[i] = data.flows.id.map(() => Infinity);
  return one;
}
function laneOf(one, phase, job, key) {
  let lane = one.lanes.find(l => l.phase === phase && l.job === job);
  if (!lane) one.lanes.push((lane = {phase, job}));
  lane[key] ??= {time: [], count: [], seconds: 0, rows: 0, thinned: false, steps: []};
  return lane[key];
}
function addUp(area, now) {
  // how many are open from each time on, out of how many more or fewer there are
  area.steps.sort((a, b) => a[0] - b[0]);
  area.time = area.steps.map(s => s[0]);
  let open = 0;
  area.count = area.steps.map(s => (open += s[1]));
  if (open) {
    area.time.push(Math.max(now, area.time.at(-1))); // and still are
    area.count.push(open);
  }
  area.seconds = d3.sum(d3.pairs(area.time), ([a, b], i) => (area.count[i] ? b - a : 0));
  area.rows = d3.sum(area.steps, s => Math.max(s[1], 0));
  area.fresh = open > 0;
}
function addLoad(one, {spans, levels}) {
  const bytes = Uint8Array.from(atob(levels), c => c.charCodeAt(0));
  one.load ??= {edges: [spans[0][0]], levels: 200};
  for (const [from, to] of spans) {
    if (from > one.load.edges.at(-1)) {
      one.columns.push(null); // the clock skipped what needs no packets
      one.load.edges.push(from);
    }
    one.columns.push(bytes);
    one.load.edges.push(to);
  }
}
function numbered(list, key, item) {
  const index = list.findIndex(one => String(one) === String(key));
  return index >= 0 ? index : list.push(item) - 1;
}
function addCircuits(one, {time_s: time, epoch, names, paths}) {
  const c = one.circuits;
  if (c.epochs) c.epochs.push(epoch);
  c.times.push(time);
  c.sets.push(c.held.length);
  c.held.push({
    circuits: names.map(name => numbered(c.names, name, name)),
    paths: paths.map(path => numbered(c.paths, path, path)),
  });
}
function addRewires(one, {clock_s: now, rewires, under_way: open}) {
  one.rewires = [...one.rewires.filter(r => !r.open), ...rewires];
  if (!open) return;
  const so_far = {programmed_s: now, dark_until_s: now, usable_s: now, exposed_s: 0};
  const epoch = "under way",
    stay = open.stay && open.stay.map(path => numbered(one.circuits.paths, path, path));
  one.rewires.push({...so_far, epoch, hidden_s: now - open.requested_s, ...open, stay, open: true});
}
function addPhase(one, [name, phase, step, begin_s, end_s]) {
  let entry = one.phases.find(p => p.name === name);
  if (!entry) one.phases.push((entry = {name, phase, step}));
  Object.assign(entry, {begin_s, end_s: end_s ?? Infinity});
}
function addLook(record) {
  const one = runs[record.run],
    {start_s: start, finish_s: finish} = data.flows;
  one.step_s = Math.max(one.step_s, record.clock_s);
  for (const [i, from, to] of record.flows) {
    start[one.column][i] = from;
    finish[one.column][i] = to ?? Infinity;
  }
  for (const [phase, job, key, steps] of record.lanes) {
    const area = laneOf(one, phase, job, key);
    area.steps.push(...steps);
    area.fresh = true;
  }
  record.phases.forEach(phase => addPhase(one, phase));
  if (record.load) addLoad(one, record.load);
  if (one.circuits) record.circuits.forEach(circuits => addCircuits(one, circuits));
  addRewires(one, record);
  if (record.guard) opinion(one, record.guard);
  if (record.said) {
    doing = record.said; // of a controller, which knows no phases
    return;
  }
  const phase = one.phases.findLast(p => p.end_s === Infinity);
  doing = `${one.label}: ${phase ? phaseName(one, phase, ", ") : "no packets now"}`;
  if (record.under_way) doing += ", a rewire under way";
}
function opinion(one, guard) {
  const place = at("guard");
  place.className = guard.ok ? "fact ok" : "fact bad";
  const more = `latest start ${seconds(guard.worst_lateness_s)}, others ${percent(guard.foreign)}`;
  const said = document.createElement("b");
  said.textContent = guard.ok ? "keeps pace" : `may not keep pace: ${guard.reasons.join("; ")}`;
  place.replaceChildren(`${one.label}: `, said, ` (${more} of the processors)`);
}
function take(record) {
  if (record.run !== undefined) addLook(record);
  else if (record.said !== undefined) doing = record.said;
  else {
    for (const one of runs) one.running = false;
    blank(record.turn);
    if (following) state.run = record.turn;
    doing = `${runs[record.turn].label}: packets are about to flow`;
  }
  later();
}
function later() {
  if (dirty) return;
  dirty = true;
  setTimeout(redraw, REDRAW);
}

// --- drawing it ---------------------------------------------------------------------------------
function redraw() {
  dirty = false;
  if (pressed) return void later(); // not under a pointer that drags
  const focused = document.activeElement === lanes.node();
  for (const one of runs)
    for (const lane of one.lanes)
      for (const key of ["computes", "sends"]) if (lane[key]?.fresh) addUp(lane[key], one.step_s);
  if (at("doing").textContent !== doing) at("doing").textContent = doing;
  const all = state.from <= 0 && state.to >= whole[1];
  whole = [0, d3.max(runs, one => one.step_s) || 1];
  if (all) Object.assign(state, {from: 0, to: whole[1]});
  const latest = runs.findLast(one => one.running);
  if (following && latest) {
    const seen = latest.load ? latest.load.edges.at(-1) : latest.step_s;
    state.t = seen * (1 - 1e-9); // in the last span that was looked at, not at its end
    state.chosen = state.run === latest.column ? state.chosen : null;
    state.run = latest.column;
  }
  shape();
  if (focused) lanes.node().focus();
}
function shape() {
  // draw again what has another shape now: all, or the lanes, or nothing but their edges
  const menus = JSON.stringify([state.run, runs.map(one => [one.phases.length, one.running])]),
    rows = JSON.stringify(runs.map(one => [one.lanes.map(Object.keys), one.rewires.at(-1)]));
  if (menus !== shapes.menus) show();
  else if (rows !== shapes.rows) {
    drawLanes();
    keys(run());
    phaseMenu();
  } else {
    scaleLanes();
    lanes.attr("aria-valuemax", whole[1]).selectAll(".caption").text(caption);
  }
  Object.assign(shapes, {menus, rows});
  soon();
}
function follow_(on) {
  following = on;
  at("follow").setAttribute("aria-pressed", on);
  if (on) redraw();
}
function end({error, report}) {
  if (report) {
    clearTimeout(resting); // the report has an address of its own
    history.replaceState(null, "", location.pathname);
    location.reload(); // the finished report stands here now
    return;
  }
  const last = runs.findLast(one => one.running);
  for (const one of runs) one.running = false;
  if (following && last && !controlled(last)) state.t = last.step_s;
  doing = runs.some(controlled)
    ? error
    : `The run has ended: ${error || "it has no report; see its folder"}`;
  redraw();
}
function listenLive() {
  const source = new EventSource("events");
  let failed = 0;
  source.onmessage = event => take(JSON.parse(event.data));
  source.addEventListener("end", event => {
    source.close();
    end(JSON.parse(event.data));
  });
  source.onopen = () => (failed = 0);
  source.onerror = () => {
    if (++failed >= MOST_FAILED) source.close();
    at("doing").textContent =
      source.readyState === EventSource.CLOSED
        ? "The page's server is gone; what came until then stands here."
        : `${doing} (not connected; trying again)`;
  };
  at("follow").onclick = () => follow_(true);
  addEventListener("pointerdown", () => (pressed = true), true);
  for (const kind of ["pointerup", "pointercancel", "blur"])
    addEventListener(kind, () => (pressed = false), true);
  // who moves the clock looks around
  for (const kind of ["pointerdown", "keydown", "change"])
    document.querySelector(".clock").addEventListener(
      kind,
      e => (kind !== "keydown" || KEYS[e.key]) && follow_(false),
      true,
    );
  document.addEventListener("keydown", e => {
    if (document.activeElement === document.body && KEYS[e.key]) follow_(false);
  });
}
runs.forEach((one, i) => {
  if (!blanks[i]) return;
  blank(i);
  one.running = false;
});
begun.then(listenLive);
