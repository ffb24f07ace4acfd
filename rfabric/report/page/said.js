// The records of the page, and words for what they hold. The files that a page takes of this folder
// are one script in it (html.py).
const said = document.getElementById("records");
const at = id => document.getElementById(id);
const data = JSON.parse(said.textContent);
const COLOURS = {generation: "#4f86e8", training: "#e8912d", weight_sync: "#2fa678"};
// of phases of other names, as they come
const OTHERS = ["#8f7fd6", "#3aa9c4", "#d6568c", "#b58a3c", "#7c8a99", "#a6b84a", "#c2664f"];
const others = new Map();
const NAMES = {weight_sync: "weight sync"};
// of an object by a name that a user wrote: `constructor` is one, too
const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);
const count = d3.format(","),
  percent = d3.format(".0%");
const figure = d3.format(",.3~r"); // to three digits
const name = phase => own(NAMES, phase) || phase;
const phaseColour = phase => own(COLOURS, phase) || otherColour(phase);
function otherColour(phase) {
  if (!others.has(phase)) others.set(phase, OTHERS[others.size % OTHERS.length]);
  return others.get(phase);
}
const thousands = v =>
  v > 0 && v < 1e4 ? (v / 1e3).toFixed(2) : count(Math.round(v / 1e3));
const seconds = s =>
  s === 0
    ? "0 s"
    : Math.abs(s) >= 1
      ? `${s.toFixed(3)} s`
      : Math.abs(s) >= 1e-3
        ? `${(1e3 * s).toPrecision(4)} ms`
        : `${(1e6 * s).toPrecision(4)} µs`;
const bytes = n => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let i = 0;
  while (Math.abs(n) >= 1000 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return `${i ? n.toPrecision(4) : n} ${units[i]}`;
};
