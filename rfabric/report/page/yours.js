// "Your run": the phases that a log tells, a lane each, on the axis of the others.
const YOURS = "your run";
const yoursPhases = () => (data.yours ? data.yours.phases.filter(p => p.phase !== "step") : []);
const yoursHeight = () => (data.yours ? HEAD + LANE * yoursPhases().length + GAP : 0);
function yoursBars(logged, one = run()) {
  // how long is logged, not when: each begins where it does on the chosen fabric
  return one.phases
    .filter(p => p.phase === logged.phase)
    .map(p => ({logged, begin: p.begin_s, end: p.begin_s + logged.logged_s}));
}
const yoursEnds = () =>
  runs.flatMap(one =>
    yoursPhases().flatMap(logged => yoursBars(logged, one).map(bar => bar.end)),
  );
const signed = error => (error === null ? "no error" : d3.format("+.1%")(error));
function yoursWords(phase) {
  const logged = data.yours && data.yours.phases.find(p => p.phase === phase);
  if (!logged) return null;
  const {predicted_s: predicted, error} = logged.runs[state.run];
  return (
    `${YOURS}, ${name(phase)}: ${seconds(logged.logged_s)} logged (${data.yours.which}), ` +
    `${seconds(predicted)} on ${run().label}: ${signed(error)}`
  );
}
function drawYours(width, left, y) {
  if (!data.yours) return;
  const group = lanes.append("g").attr("class", "yours").attr("transform", `translate(0,${y})`);
  const head = group.append("text").attr("class", "strong").attr("x", 2).attr("y", 14);
  head.text(YOURS);
  const said = group.append("text").attr("x", width - 8).attr("y", 14).attr("text-anchor", "end");
  said.text(width < 520 ? data.yours.which : `${data.yours.name}, ${data.yours.which}`);
  yoursPhases().forEach((phase, i) => {
    const lane = group
      .append("g")
      .datum(phase)
      .attr("class", "logged")
      .attr("data-phase", phase.phase)
      .attr("transform", `translate(0,${HEAD + LANE * i})`);
    if (left > 100)
      lane
        .append("text")
        .attr("x", left - 6)
        .attr("y", 15)
        .attr("text-anchor", "end")
        .text(name(phase.phase));
    lane.append("g").attr("clip-path", "url(#inside)").append("g").attr("class", "bars");
    lane.append("text").attr("class", "strong error").attr("y", 15);
  });
}
function scaleYours() {
  const edge = x.range()[1];
  lanes.selectAll(".yours .logged").each(function (phase) {
    const bars = yoursBars(phase),
      seen = bars.find(b => x(b.end) > x.range()[0] && x(b.begin) < edge);
    d3.select(this)
      .select(".bars")
      .selectAll("rect")
      .data(bars)
      .join("rect")
      .attr("y", 3)
      .attr("height", LANE - 6)
      .attr("fill", phaseColour(phase.phase))
      .attr("x", b => x(b.begin))
      .attr("width", b => Math.max(x(b.end) - x(b.begin), 1.5))
      .on("click", event => {
        event.stopPropagation();
        read("yours", phase.phase);
      });
    const room = seen && x(seen.end) < edge - 60; // behind the bar, else before it
    const before = seen && x(seen.begin) > x.range()[0] + 60 ? x(seen.begin) - 5 : edge - 3;
    d3.select(this)
      .select(".error")
      .attr("x", room ? x(seen.end) + 5 : before)
      .attr("text-anchor", room ? "start" : "end")
      .text(seen ? signed(phase.runs[state.run].error) : "");
  });
}
