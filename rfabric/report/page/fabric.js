// The fabric of the chosen row: its cables, and its light paths on a circle, as they are now.
const W = 640,
  H = 300,
  PAD = 26;
function groups(one) {
  // what is drawn: nodes, or pods where they are too many
  const big = one.gpus > MOST_HOSTS;
  const key = node =>
    !big || node[3] === state.pod ? "n" + node[0] : node[3] >= 0 ? "p" + node[3] : "t" + node[2];
  const byId = new Map();
  one.nodes.forEach((node, i) => {
    const id = key(node);
    if (!byId.has(id)) byId.set(id, {id, nodes: [], x: 0, y: 0});
    byId.get(id).nodes.push(i);
  });
  for (const g of byId.values()) {
    g.x = d3.mean(g.nodes, i => one.nodes[i][5]);
    g.y = d3.mean(g.nodes, i => one.nodes[i][6]);
    g.node = g.id[0] === "n" ? one.nodes[g.nodes[0]] : null;
    g.pod = g.id[0] === "p" ? +g.id.slice(1) : null;
    g.name = g.node
      ? g.node[0]
      : g.pod !== null
        ? `pod ${g.pod + 1}`
        : `${g.nodes.length} ${g.id.slice(1)} switches`;
  }
  if (big) arrange([...byId.values()]);
  return byId;
}
function arrange(list) {
  // an opened pod spreads over the width, the other pods stand below it
  const own = list.filter(g => g.node),
    pods = list.filter(g => g.pod !== null);
  pods
    .sort((a, b) => a.pod - b.pod)
    .forEach((g, i) => {
      g.x = ((i % 24) + 0.5) / Math.min(pods.length, 24);
      g.y = -0.08 * Math.floor(i / 24);
    });
  const [low, high] = d3.extent(own, g => g.x),
    top = d3.max(own, g => g.y) || 1;
  for (const g of own) {
    g.x = high > low ? 0.03 + (0.94 * (g.x - low)) / (high - low) : 0.5;
    g.y = 0.25 + (0.5 * g.y) / top;
  }
  list
    .filter(g => !g.node && g.pod === null)
    .forEach((g, i, all) => {
      g.x = (i + 0.5) / all.length;
      g.y = 1;
    });
}
function podMenu(one) {
  // a large fabric is drawn by pods, of which one may be open
  const pods = [...new Set(one.nodes.map(n => n[3]))].filter(pod => pod >= 0).sort(d3.ascending);
  const big = one.gpus > MOST_HOSTS && pods.length > 0;
  at("pods").parentNode.hidden = !big;
  const options = [["", "by pods"], ...(big ? pods.map(pod => [pod, `pod ${pod + 1}`]) : [])];
  d3.select("#pods")
    .selectAll("option")
    .data(options)
    .join("option")
    .attr("value", o => o[0])
    .text(o => o[1]);
  at("pods").value = state.pod === null ? "" : state.pod;
}
function drawFabric() {
  const place = d3.select("#fabric"),
    one = run();
  place.selectAll("*").remove();
  drawn = {cables: [], circle: null};
  if (one.nodes.length) drawCables(place, one);
  if (one.circuits) drawCircle(place, one);
  keys(one);
  podMenu(one);
}
function drawCables(place, one) {
  const box = groups(one),
    of = new Map();
  for (const g of box.values()) for (const i of g.nodes) of.set(i, g);
  const joined = new Map();
  one.links.forEach((link, i) => {
    const a = of.get(link[0]),
      b = of.get(link[1]);
    if (a === b) return;
    const id = a.id < b.id ? a.id + "|" + b.id : b.id + "|" + a.id;
    if (!joined.has(id)) joined.set(id, {id, a, b, links: []});
    joined.get(id).links.push(i);
  });
  const low = d3.min(box.values(), g => g.y),
    high = d3.max(box.values(), g => g.y);
  const px = g => PAD + (W - 2 * PAD) * g.x,
    py = g => H - PAD - ((H - 2 * PAD) * (g.y - low)) / (high - low || 1);
  const svg = place
    .append("svg")
    .attr("class", "cables")
    .attr("viewBox", `0 0 ${W} ${H}`)
    .attr("role", "img")
    .attr("aria-label", `cables of ${one.label}, coloured by load`);
  const list = [...joined.values()];
  const d = c => `M${px(c.a)},${py(c.a)}L${px(c.b)},${py(c.b)}`;
  const cable = svg
    .append("g")
    .selectAll("path")
    .data(list)
    .join("path")
    .attr("class", "cable")
    .attr("d", d);
  svg
    .append("g")
    .selectAll("path")
    .data(list)
    .join("path")
    .attr("class", "hit")
    .attr("d", d)
    .on("click", (_, c) => read("cable", c.id))
    .append("title")
    .text(c => cableName(one, c));
  drawn.cables = list;
  drawn.cable = cable;
  const spot = svg
    .append("g")
    .selectAll("g")
    .data([...box.values()])
    .join("g")
    .attr("transform", g => `translate(${px(g)},${py(g)})`);
  spot
    .append("circle")
    .attr("class", g => `node ${g.node ? g.node[1] : "group"}`)
    .attr("r", g => (g.node ? (g.node[1] === "host" ? (box.size > 150 ? 2.2 : 3.2) : 6) : 9))
    .on("click", (_, g) => (g.pod !== null ? unfold(g.pod) : read("node", g.id)))
    .append("title")
    .text(g => g.name);
  const widths = d3.rollup(
    box.values(),
    all => all.length,
    g => Math.round(py(g)),
  );
  spot
    .filter(g => (!g.node || g.node[1] !== "host") && widths.get(Math.round(py(g))) <= 26)
    .append("text")
    .attr("class", g => (widths.get(Math.round(py(g))) > 8 ? "many" : ""))
    .attr("y", g => (g.node ? -9 : g.pod === null ? -12 : 22))
    .attr("text-anchor", "middle")
    .text(g => (g.pod !== null && widths.get(Math.round(py(g))) > 10 ? g.pod + 1 : g.name));
  drawn.box = box;
}
const cableName = (one, c) =>
  c.links.length === 1
    ? `cable ${one.links[c.links[0]][2]}`
    : `${count(c.links.length)} cables ${c.a.name} – ${c.b.name}`;
function onCircle(names, key) {
  const turn = i => (2 * Math.PI * (i + 0.5)) / names.length - Math.PI / 2;
  const place = new Map(names.map((n, i) => [key(n, i), [Math.cos(turn(i)), Math.sin(turn(i))]]));
  return {place, of: one => place.get(one)};
}
function spots(one) {
  // racks on a circle, or pods where racks are too many
  const racks = one.circuits.racks,
    pod = new Map(one.nodes.map(n => [n[0], n[3]]));
  const byPod = racks.length > 64 && racks.every(r => pod.get(r) >= 0);
  const names = byPod ? [...new Set(racks.map(r => pod.get(r)))] : racks;
  const {place} = onCircle(names, n => n);
  return {
    byPod,
    names,
    place,
    of: rack => place.get(byPod ? pod.get(racks[rack]) : racks[rack]),
    name: n => (byPod ? `${n + 1}` : n),
  };
}
function drawCircle(place, one) {
  const svg = place
    .append("svg")
    .attr("class", "circle")
    .attr("viewBox", "-150 -150 300 300")
    .attr("role", "img")
    .attr("aria-label", `light paths of ${one.label} at this instant`);
  const ring = spots(one),
    R = 112;
  drawn.circle = {paths: svg.append("g"), ring, R, epoch: -1};
  const spot = svg
    .append("g")
    .selectAll("g")
    .data(ring.names)
    .join("g")
    .attr("transform", n => `translate(${ring.place.get(n).map(v => v * R)})`);
  spot
    .append("circle")
    .attr("r", ring.names.length > 40 ? 2.5 : 5)
    .attr("class", "node eps")
    .on("click", (_, n) => (ring.byPod ? unfold(n) : read("node", "n" + n)))
    .append("title")
    .text(n => `${ring.byPod ? "pod " : ""}${ring.name(n)}`);
  if (ring.names.length <= 64)
    spot
      .append("text")
      .attr("text-anchor", "middle")
      .attr("dy", 4)
      .attr("transform", n => `translate(${ring.place.get(n).map(v => v * 17)})`)
      .text(ring.name);
}
function chord(ring, R, path, planes) {
  const [a, b] = [ring.of(path[0]), ring.of(path[1])].map(p => [p[0] * R, p[1] * R]);
  const mid = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2],
    along = [b[0] - a[0], b[1] - a[1]];
  const bend = 0.14 * ((Math.max(path[2], 0) % 4) - 1.5);
  const c = [0.35 * mid[0] - bend * along[1], 0.35 * mid[1] + bend * along[0]];
  return `M${a}Q${c} ${b}`;
}
function bundles(one, ring) {
  // light paths one by one, or those of two pods together
  const now = held(one, state.t),
    pod = new Map(one.nodes.map(n => [n[0], n[3]]));
  if (now.bundles) return now.bundles;
  const byId = new Map();
  for (const i of now.paths) {
    const ends = one.circuits.paths[i]
      .slice(0, 2)
      .map(r => pod.get(one.circuits.racks[r]))
      .sort(d3.ascending);
    if (ring.byPod && ends[0] === ends[1]) continue;
    const id = ring.byPod ? `pods ${ends[0] + 1} – ${ends[1] + 1}` : i;
    if (!byId.has(id)) byId.set(id, {id, paths: []});
    byId.get(id).paths.push(i);
  }
  return (now.bundles = [...byId.values()]);
}
function drawPaths(one) {
  const {paths, ring, R} = drawn.circle,
    list = bundles(one, ring),
    most = d3.max(list, b => b.paths.length);
  const d = b => chord(ring, R, one.circuits.paths[b.paths[0]]);
  paths
    .selectAll("g")
    .data(list, b => b.id)
    .join(enter => {
      const g = enter.append("g").attr("data-path", b => b.id);
      g.append("path").attr("class", "path").attr("d", d);
      g.append("path")
        .attr("class", "hit")
        .attr("d", d)
        .on("click", (_, b) => read("path", b.id))
        .append("title")
        .text(b => bundleName(one, b));
      return g;
    })
    .select(".path")
    .style("stroke-width", b => (most > 1 ? 0.6 + (3 * b.paths.length) / most : null));
}
const bundleName = (one, b) =>
  b.paths.length > 1 || typeof b.id === "string"
    ? `${b.id}: ${count(b.paths.length)} light paths`
    : pathName(one, b.id);
const pathName = (one, i) => {
  const [a, b, plane] = one.circuits.paths[i];
  const beside = plane >= 0 ? `, plane ${plane}` : "";
  return `light path ${one.circuits.racks[a]} – ${one.circuits.racks[b]}${beside}`;
};
function keys(one) {
  const legend = [];
  if (one.load) legend.push(["#5b9bd5", "a little load"], ["#e8b12d", "half"], ["#c23744", "full"]);
  if (one.rewires.length && controlled(one)) legend.push([UNKNOWN, "rewire (hatched)"]);
  else if (one.rewires.length)
    legend.push(
      [HIDDEN, "rewire hidden: no flow waits (hatched)"],
      [EXPOSED, "rewire exposed: a flow waits (hatched)"],
    );
  const {jobs} = told(one);
  if (jobs.length > 1) jobs.forEach((job, i) => legend.push([JOBS[i % JOBS.length], job]));
  d3.select("#keys")
    .selectAll("span")
    .data(legend)
    .join("span")
    .style("--c", k => k[0])
    .text(k => k[1]);
}
function classes(first, more) {
  return [first, ...Object.keys(more).filter(key => more[key])].join(" ");
}
function paint() {
  const one = run(),
    share = shares(one, state.t),
    now = held(one, state.t);
  const lit = new Set(),
    dark = darkPaths(one, state.t);
  if (now)
    for (const p of now.paths)
      if (!dark.has(p)) for (const link of one.circuits.paths[p][3]) lit.add(link >> 1);
  const optical = link =>
    one.nodes[one.links[link][0]][1] === "ocs" || one.nodes[one.links[link][1]][1] === "ocs";
  if (drawn.cable)
    drawn.cable.each(function (c) {
      const most = share ? d3.max(c.links, link => busiest(share, link)) : 0;
      const unlit = now && c.links.every(link => optical(link) && !lit.has(link));
      this.style.stroke = most > 0 ? load(most) : "";
      this.style.strokeWidth = most > 0 ? 2.2 : "";
      const chosen = state.chosen && state.chosen.key === c.id;
      this.setAttribute("class", classes("cable", {idle: !(most > 0), unlit, chosen}));
    });
  if (drawn.circle) {
    drawPaths(one);
    drawn.circle.paths.selectAll("g").each(function (b) {
      const most = share
        ? d3.max(b.paths, i => d3.max(one.circuits.paths[i][3], link => busiest(share, link >> 1)))
        : 0;
      const line = this.firstChild;
      const chosen = state.chosen && state.chosen.key === b.id;
      const down = b.paths.every(i => dark.has(i));
      line.setAttribute("class", classes("path", {dark: down, chosen}));
      line.style.stroke = most > 0 ? load(most) : "var(--muted)";
    });
  }
}
