// What the records say of an instant, and how it is put in words.
const WORLDS = {
  simulate: "simulated",
  emulate: "real packets",
  ns3: "packets of ns-3",
  control: "under control",
};
const JOBS = [
  "#4f86e8",
  "#e8912d",
  "#2fa678",
  "#8f7fd6",
  "#3aa9c4",
  "#d6568c",
  "#b58a3c",
  "#7c8a99",
];
const HIDDEN = "#8f7fd6",
  EXPOSED = "#d6568c",
  UNKNOWN = "#8a94a3"; // whether flows waited
const MOST_HOSTS = 128; // drawn one by one; beyond, pods are drawn and opened
const SVG = "http://www.w3.org/2000/svg";
const load = d3
  .scaleLinear()
  .domain([0, 0.5, 1])
  .range(["#5b9bd5", "#e8b12d", "#c23744"])
  .clamp(true);

const runs = data.runs;
const state = {t: 0, run: 0, playing: false, pod: null, chosen: null, world: "", price: null};
Object.assign(state, {from: 0, to: 1}); // the window, in s
let shown = [],
  axis,
  x,
  whole,
  lanes,
  drawn,
  queued = false,
  last = 0;

// --- words ------------------------------------------------------------------------------------
function phaseName(one, phase, between) {
  // of several jobs, whose steps take turns, by name
  const names = told(one).jobs,
    jobs = Math.max(names.length, 1),
    named = [names[phase.step % jobs], name(phase.phase)].filter(Boolean).join(" ");
  return one.steps > jobs ? `${named}${between}step ${Math.floor(phase.step / jobs)}` : named;
}
const rate = bps => `${d3.format(".4~s")(bps)}bit/s`;
const or = (value, show) => (value === null || value === undefined ? "–" : show(value));

// --- what is recorded at an instant -----------------------------------------------------------
const run = () => runs[state.run];
const waiting = one => one.running === false && !one.step_s; // of a live page: not begun yet
const controlled = one => one.engine === "control"; // and then no flows are known
const told = one => (data.traces ? data.traces[one.trace] : data); // flows and jobs
const under = (times, t) => Math.max(d3.bisectRight(times, t) - 1, 0);
function epoch(one, t) {
  return one.circuits ? under(one.circuits.times, t) : 0;
}
// a controller numbers its epochs itself, and begins at any
const epochNumber = (one, n) => (one.circuits.epochs ? one.circuits.epochs[n] : n);
function held(one, t) {
  return one.circuits && one.circuits.held[one.circuits.sets[epoch(one, t)]];
}
const rewireAt = (one, t) => one.rewires.find(r => r.programmed_s <= t && t < r.usable_s);
function after(one, rewire) {
  const c = one.circuits;
  return c.held[c.sets[under(c.times, rewire.usable_s)]];
}
function darkPaths(one, t) {
  // of the light paths held, those that a rewire under way takes down
  const rewire = one.circuits && rewireAt(one, t);
  if (!rewire) return new Set();
  const stay = new Set(rewire.stay || after(one, rewire).paths);
  return new Set(held(one, t).paths.filter(path => !stay.has(path)));
}
const flowing = (lane, t) => (lane.sends ? level(lane.sends, t) : 0);
function level(steps, t) {
  const i = d3.bisectRight(steps.time, t) - 1;
  return i < 0 ? 0 : steps.count[i];
}
function shares(one, t) {
  // of each directed cable, or null where no record covers the instant
  if (!one.load) return null;
  const i = d3.bisectRight(one.load.edges, t) - 1;
  if (i < 0 || i >= one.load.edges.length - 1) return () => 0;
  const wide = one.load.edges.length - 1;
  if (one.columns) return link => (one.columns[i] ? one.columns[i][link] / one.load.levels : 0);
  return link => (one.bytes ? one.bytes[link * wide + i] / one.load.levels : 0);
}
const busiest = (share, link) => Math.max(share(2 * link), share(2 * link + 1));
function flowsAt(one, t) {
  const start = told(one).flows.start_s[one.column],
    finish = told(one).flows.finish_s[one.column],
    inFlight = [];
  for (let i = 0; i < start.length; i++) if (start[i] <= t && t < finish[i]) inFlight.push(i);
  return inFlight;
}
const instant = t => `${t.toFixed(6)} s`;
function flowName(i) {
  const {id, hosts, src, dst} = told(run()).flows;
  return `flow ${id[i]} ${hosts[src[i]]} → ${hosts[dst[i]]}`;
}
async function unpack(one) {
  if (!one.load) return;
  if (!window.DecompressionStream) {
    one.load = null;
    return;
  } // a browser of before 2023
  const raw = Uint8Array.from(atob(one.load.share), c => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  one.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
}
