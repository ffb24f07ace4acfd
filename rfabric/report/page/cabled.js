// What is cabled, and what is lit: pods with their cables, circuits epoch by epoch.
const ABREAST = 4; // epochs
const RING = 82; // units from the middle to a rack
PICTURES.circuits = (place, {by_pod: byPod, names, pods, epochs, of}, label) => {
  const columns = Math.min(epochs.length, ABREAST),
    wide = FULL / ABREAST,
    high = 296,
    more = of > epochs.length ? 18 : 0,
    rows = Math.ceil(epochs.length / columns),
    svg = framed(place, wide * columns, high * rows + more, label),
    ring = {byPod, ...onCircle(names, (_, i) => i)};
  epochs.forEach((one, i) => {
    const [x, y] = [wide * (i % columns), high * Math.floor(i / columns)],
      where = svg.append("g").attr("transform", `translate(${x + wide / 2},${y + 138})`);
    const title = `epoch ${i}  ${one.title}`;
    headed(where, 0, -124, title, wide - 8);
    drawRing(where, one.paths, ring, names, pods);
    const moved = one.changed === null ? "" : `, ${count(one.changed)} changed`;
    write(where, 0, 128, `from ${one.time_s.toFixed(6)} s`, {anchor: "middle"});
    write(where, 0, 143, `${count(one.circuits)} circuits${moved}`, {anchor: "middle"});
  });
  if (more) write(svg, 0, high * rows + 12, `the first ${epochs.length} of ${count(of)} epochs`);
};
function drawRing(where, paths, ring, names, pods) {
  const spot = i => ring.place.get(i).map(v => v * RING),
    lines = where.append("g").attr("class", "paths"),
    within = new Map(paths.filter(([a, b]) => ring.byPod && a === b).map(([a, , n]) => [a, n]));
  podArcs(where, pods);
  const most = d3.max(paths, ([a, b, n]) => (a === b ? 0 : n)),
    thick = n => (ring.byPod ? 0.3 + (3 * n) / most : Math.min(2, 133 / paths.length));
  for (const path of paths) {
    const [a, b, n] = path;
    if (a === b) continue;
    const line = lines.append("path").attr("d", chord(ring, RING, ring.byPod ? [a, b, 0] : path));
    line.attr("stroke", JOBS[(ring.byPod ? 0 : Math.max(n, 0)) % JOBS.length]);
    line.attr("stroke-width", thick(n));
    const what = ring.byPod ? `: ${count(n)} light paths` : n >= 0 ? `: plane ${n}` : "";
    hint(line, `${names[a]} – ${names[b]}${what}`);
  }
  const apart = (2 * Math.PI * (RING + 16)) / names.length,
    every = Math.ceil((roomOf(names, 36, 10) + 1) / apart); // is named
  names.forEach((one, i) => {
    const [x, y] = spot(i),
      dot = where.append("circle").attr("class", "rack").attr("cx", x).attr("cy", y);
    dot.attr("r", Math.min(4.5, 180 / names.length));
    hint(dot, ring.byPod ? `${one}: ${count(within.get(i) || 0)} light paths inside` : one);
    if (i % every === 0 && i <= names.length - every) nameSpot(where, one, ring.place.get(i));
  });
}
function nameSpot(where, text, [x, y]) {
  // outside the arcs, away from the circle
  const anchor = Math.abs(x) < 0.3 ? "middle" : x > 0 ? "start" : "end",
    room = anchor === "middle" ? 60 : FULL / ABREAST / 2 - 2 - Math.abs(x) * (RING + 16);
  write(where, x * (RING + 16), y * (RING + 18) + 3.5, text, {anchor, room, size: 10, ink: true});
}
function podArcs(where, pods) {
  // racks of a pod stand side by side
  const half = Math.PI / pods.length,
    turn = i => (2 * Math.PI * (i + 0.5)) / pods.length,
    arc = d3.arc().innerRadius(RING + 8).outerRadius(RING + 11);
  for (const [pod, turns] of d3.group(pods.map((_, i) => turn(i)), (_, i) => pods[i])) {
    if (pod < 0) continue;
    const [first, last] = d3.extent(turns);
    const shape = arc.startAngle(first - 0.85 * half).endAngle(last + 0.85 * half)();
    hint(where.append("path").attr("class", "pod").attr("d", shape), `pod ${pod + 1}`);
  }
}
const KINDS = {
  ocs: "optical circuit switch",
  eps: "electrical packet switch",
  host: "GPU",
};
const TIERS = [
  ["core", "core"],
  ["aggregation", "aggregation"],
  ["edge", "ToR"],
  ["server", "server"],
  ["host", "GPU"],
];
PICTURES.cables = (place, {nodes, links, of}, label) => {
  const svg = framed(place, FULL, 442, label),
    [low, high] = d3.extent(nodes, node => node[4]),
    [under, over] = d3.extent(nodes, node => node[5]),
    x = d3.scaleLinear([low, high], high > low ? [128, FULL - 44] : [FULL / 2, FULL / 2]),
    y = d3.scaleLinear([under - 0.55, over + 0.6], [442 - EDGE, EDGE]),
    at = nodes.map(node => [x(node[4]), y(node[5])]);
  podBoxes(svg, nodes, at, x, y);
  for (const [a, b, rise] of links) {
    const ends = [nodes[a], nodes[b]],
      line = svg.append("path").attr("class", `link ${linkKind(ends)}`);
    line.attr("d", linkPath(ends, at[a], at[b], y(0) - y(2 * rise)));
  }
  for (const [tier, text] of TIERS) {
    const first = nodes.findIndex(node => node[2] === tier);
    if (first >= 0) write(svg, 100, at[first][1] + 4, text, {anchor: "end", size: 12});
  }
  for (const row of d3.group(d3.range(nodes.length), i => at[i][1]).values()) {
    const spots = row.map(i => at[i][0]).sort(d3.ascending),
      apart = d3.min(d3.pairs(spots), ([left, right]) => right - left) ?? 60;
    for (const i of row) drawNode(svg, nodes[i], at[i], apart);
    const named = row.filter(i => isNamed(nodes[i]));
    nameSwitches(svg, named.map(i => [nodes[i][0], at[i]]), apart);
  }
  if (nodes.length < of) {
    const words = `${count(nodes.length)} of ${count(of)} nodes drawn`;
    write(svg, FULL - EDGE, 14, words, {anchor: "end", size: 12});
  }
};
const isElectrical = ends => ends.some(node => node[2] === "electrical");
const linkKind = ends =>
  isElectrical(ends) ? "thin" : ends.some(node => node[1] === "ocs") ? "ocs" : "";
function linkPath(ends, [x1, y1], [x2, y2], rise) {
  if (isElectrical(ends)) return `M${x1},${y1}V${y2}H${x2}`; // a bus: up from the ToR, and along
  const by = rise ? `Q${(x1 + x2) / 2},${y1 - rise} ` : "L";
  return `M${x1},${y1}${by}${x2},${y2}`;
}
function podBoxes(svg, nodes, at, x, y) {
  const beside = Math.min(14, x(0.22) - x(0)),
    inPods = nodes.map((node, i) => [node, at[i]]).filter(([node]) => node[3] >= 0);
  for (const [pod, some] of d3.group(inPods, ([node]) => node[3])) {
    const [left, right] = d3.extent(some, ([, spot]) => spot[0]),
      top = y(d3.max(some, ([node]) => node[5]) + 0.4),
      box = svg.append("rect").attr("class", "frame").attr("x", left - beside).attr("y", top);
    box.attr("width", right - left + 2 * beside).attr("height", y(-0.28) - top).attr("rx", 7);
    const room = right - left + 28;
    write(svg, (left + right) / 2, y(-0.48), `pod ${pod + 1}`, {anchor: "middle", room, size: 12});
  }
}
const isNamed = node => !["host", "edge", "server"].includes(node[2]);
function drawNode(svg, [text, kind, tier], [x, y], apart) {
  const half = Math.min(kind === "host" ? 2.7 : 6, 0.45 * apart),
    wide = half + Math.min(2, 0.05 * apart), // of a diamond
    node = svg.append("path").attr("class", `spot ${tier === "electrical" ? "thin" : kind}`);
  const shapes = {
    host: `M${-half},0a${half},${half} 0 1 0 ${2 * half},0a${half},${half} 0 1 0 ${-2 * half},0`,
    ocs: `M0,${-wide}L${wide},0L0,${wide}L${-wide},0z`,
    eps: `M${-half},${-half}h${2 * half}v${2 * half}h${-2 * half}z`,
  };
  node.attr("d", shapes[kind]).attr("transform", `translate(${x},${y})`);
  hint(node, `${text}: ${KINDS[kind]}, ${tier}`);
}
function nameSwitches(svg, named, apart) {
  // where each name has room before the next
  const size = 10;
  if (roomOf(named.map(([text]) => text), Infinity, size) + 3 > apart) return;
  for (const [text, [x, y]] of named) write(svg, x + 8, y - 9, text, {size}).attr("class", "over");
}
