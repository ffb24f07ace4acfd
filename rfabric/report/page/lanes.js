// The lanes: a group a fabric, a lane a phase, on one axis of time; rewires hatched below.
const LANE = 22,
  HEAD = 20,
  STRIP = 8,
  GAP = 10;
const lanesOf = one => one.lanes.filter(lane => lane.drawn !== false);
function height(one) {
  return HEAD + LANE * lanesOf(one).length + (one.rewires.length ? STRIP : 0) + GAP;
}
function drawLanes() {
  const place = at("lanes"),
    width = Math.max(place.clientWidth, 280),
    left = width < 520 ? 8 : 132;
  const total = d3.sum(shown, height) + yoursHeight();
  d3.select(place).selectAll("svg").remove();
  lanes = d3
    .select(place)
    .append("svg")
    .attr("viewBox", `0 0 ${width} ${total + 26}`)
    .attr("role", "slider")
    .attr("tabindex", 0)
    .attr("aria-label", "time of the clock")
    .attr("aria-valuemin", 0)
    .attr("aria-valuemax", whole[1]);
  const defs = lanes.append("defs");
  for (const [id, colour] of [
    ["hatch-hidden", HIDDEN],
    ["hatch-exposed", EXPOSED],
    ["hatch-unknown", UNKNOWN],
  ]) {
    const p = defs
      .append("pattern")
      .attr("id", id)
      .attr("width", 4)
      .attr("height", 4)
      .attr("patternUnits", "userSpaceOnUse")
      .attr("patternTransform", "rotate(45)");
    p.append("rect").attr("width", 4).attr("height", 4).attr("fill", colour).attr("opacity", 0.35);
    p.append("rect").attr("width", 2).attr("height", 4).attr("fill", colour);
  }
  defs
    .append("clipPath")
    .attr("id", "inside")
    .append("rect")
    .attr("x", left)
    .attr("width", width - left - 26)
    .attr("height", total);
  axis = d3
    .scaleLinear()
    .domain([state.from, state.to])
    .range([left, width - 26]);
  x = axis;
  let y = 0;
  for (const one of shown) {
    const group = lanes
      .append("g")
      .datum(one)
      .attr("class", "row")
      .attr("transform", `translate(0,${y})`);
    group
      .append("rect")
      .attr("class", "back")
      .attr("width", width)
      .attr("height", height(one) - 4)
      .attr("fill", "transparent");
    lanesOf(one).forEach((lane, i) => {
      if (left > 100)
        group
          .append("text")
          .attr("x", left - 6)
          .attr("y", HEAD + LANE * i + 15)
          .attr("text-anchor", "end")
          .text(laneName(one, lane));
      const inside = group
        .append("g")
        .attr("clip-path", "url(#inside)")
        .append("g")
        .attr("transform", `translate(0,${HEAD + LANE * i})`);
      for (const [key, alpha] of [
        ["computes", 0.35],
        ["sends", 0.95],
      ])
        if (lane[key])
          inside
            .append("path")
            .datum(lane[key])
            .attr("class", "area")
            .attr("fill", colour(one, lane))
            .attr("opacity", alpha)
            .append("title")
            .text(areaWords(one, lane, key));
    });
    const strip = group
      .append("g")
      .attr("clip-path", "url(#inside)")
      .append("g")
      .attr("transform", `translate(0,${HEAD + LANE * lanesOf(one).length})`);
    strip
      .selectAll("g")
      .data(one.rewires)
      .join("g")
      .attr("class", "over-dark")
      .on("click", (event, r) => {
        event.stopPropagation();
        read("rewire", one.rewires.indexOf(r), one);
      })
      .each(function (r) {
        for (const part of PARTS)
          d3.select(this)
            .append("rect")
            .attr("class", part)
            .attr("height", STRIP)
            .attr("fill", `url(#hatch-${part})`);
        d3.select(this).append("title").text(rewireWords(r));
      });
    y += height(one);
  }
  drawYours(width, left, y);
  lanes.append("g").attr("class", "axis").attr("transform", `translate(0,${total})`);
  lanes.append("line").attr("class", "cursor").attr("y1", 0).attr("y2", total);
  drawHeads(width);
  lanes.call(
    d3
      .drag()
      .filter(event => !event.button)
      .on("start drag", event => move(x.invert(event.x))),
  );
  lanes.on(
    "wheel",
    event => {
      if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
      event.preventDefault();
      zoomBy(event.deltaY > 0 ? 1.25 : 0.8, x.invert(d3.pointer(event, lanes.node())[0]));
    },
    {passive: false},
  );
  scaleLanes();
}
function drawHeads(width) {
  // of each row its name and its caption, above the cursor: it stands at the end of a live run
  const head = lanes
    .append("g")
    .selectAll("g")
    .data(shown)
    .join("g")
    .attr("transform", (_, i) => `translate(0,${d3.sum(shown.slice(0, i), height)})`);
  head
    .append("text")
    .attr("class", "strong lane-name")
    .attr("x", 2)
    .attr("y", 14)
    .text(one => one.label.replace(`, ${own(WORLDS, one.engine)}`, "")) // the caption says it
    .on("click", (_, one) => choose(runs.indexOf(one)));
  head
    .append("text")
    .attr("class", "caption")
    .attr("x", width - 8)
    .attr("y", 14)
    .attr("text-anchor", "end")
    .text(caption);
}
const laneName = (one, lane) =>
  [told(one).jobs[lane.job], name(lane.phase)].filter(Boolean).join(" ");
const colour = (one, lane) =>
  told(one).jobs.length > 1 ? JOBS[lane.job % JOBS.length] : phaseColour(lane.phase);
function areaWords(one, lane, key) {
  const what = key === "sends" ? "flows" : "computing";
  const {rows, seconds: busy} = lane[key];
  return `${laneName(one, lane)}, ${what}: ${count(rows)} rows, ${seconds(busy)} with any`;
}
function caption(one) {
  const error =
    one.fidelity && one.fidelity.median_error !== null
      ? `, ${percent(one.fidelity.median_error)} from simulated in the median`
      : "";
  const soFar = one.running ? " so far" : "";
  const took = waiting(one) ? "not begun" : `${seconds(one.step_s)}${soFar}`;
  return `${own(WORLDS, one.engine) || one.engine}${error}, ${took}`;
}
const PARTS = ["hidden", "exposed", "unknown"];
function rewireSpans({requested_s: begin, usable_s: end, exposed_s: exposed}) {
  // from when to when a rewire is of each part
  const none = [end, end];
  if (exposed === null) return {hidden: none, exposed: none, unknown: [begin, end]};
  const wait = end - (exposed || 0); // flows stand still from here on
  return {hidden: [begin, wait], exposed: [wait, end], unknown: none};
}
function scaleLanes() {
  x.domain([state.from, state.to]);
  const area = d3.area().curve(d3.curveStepAfter);
  lanes.selectAll(".area").attr("d", steps => {
    const top = d3.max(steps.count) || 1;
    return area
      .x((_, i) => x(steps.time[i]))
      .y0(LANE - 3)
      .y1(c => LANE - 3 - ((LANE - 6) * c) / top)(steps.count);
  });
  lanes.selectAll(".over-dark").each(function (r) {
    const spans = rewireSpans(r);
    for (const part in spans)
      d3.select(this)
        .select("." + part)
        .attr("x", x(spans[part][0]))
        .attr(
          "width",
          spans[part][1] > spans[part][0]
            ? Math.max(x(spans[part][1]) - x(spans[part][0]), 1.5)
            : 0,
        );
  });
  scaleYours();
  const small = x.range()[1] < 520;
  lanes.select(".axis").call(
    d3
      .axisBottom(x)
      .ticks(small ? 4 : 9)
      .tickFormat(t => `${+t.toPrecision(9)} s`),
  );
}
