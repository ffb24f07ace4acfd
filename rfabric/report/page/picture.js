// What all still pictures share: the place that one fills, words that fit, axes, tooltips.
const FULL = 1056; // units of a picture that is as wide as the page
const SIZE = 11; // of its words
const EDGE = 3; // units at its sides
const pen = document.createElement("canvas").getContext("2d");
const face = getComputedStyle(document.body).fontFamily;
const PICTURES = {}; // by kind: a function of a place and its record
function drawPictures() {
  for (const place of document.querySelectorAll("[data-picture]")) {
    const {picture, number} = place.dataset,
      record = data.pictures[picture][+number];
    if (record) PICTURES[picture](place, record, place.getAttribute("aria-label"));
  }
}
function framed(place, wide, high, label) {
  // an empty drawing; it keeps its size beside others that fill the page
  return d3
    .select(place)
    .append("svg")
    .attr("viewBox", `0 0 ${wide} ${high}`)
    .attr("role", "img")
    .attr("aria-label", label)
    .style("--share", wide / FULL);
}
function wideOf(text, size = SIZE) {
  // units, whether the text is shown or not
  pen.font = `${size}px ${face}`;
  return pen.measureText(text).width;
}
function fitted(text, room, size = SIZE) {
  // the text, or as much of its ends as there is room for
  if (wideOf(text, size) <= room) return text;
  const signs = [...text], // of which some are two units of a string
    cut = kept => {
      const last = Math.floor(kept / 3),
        both = [signs.slice(0, kept - last), last ? signs.slice(-last) : []];
      return both.map(part => part.join("")).join("…");
    };
  let fits = 0,
    over = signs.length;
  while (over - fits > 1) {
    const half = (fits + over) >> 1;
    if (wideOf(cut(half), size) <= room) fits = half;
    else over = half;
  }
  return cut(fits);
}
function write(where, x, y, text, {anchor = "start", room = Infinity, size = SIZE, ink} = {}) {
  const shown = fitted(text, room, size),
    node = where.append("text").attr("x", x).attr("y", y).attr("text-anchor", anchor);
  node.text(shown);
  if (size !== SIZE) node.style("font-size", `${size}px`);
  if (ink) node.attr("class", "ink");
  if (shown !== text) hint(node, text);
  return node;
}
const headed = (where, x, y, text, room) =>
  write(where, x, y, text, {anchor: "middle", room, size: 12, ink: true});
const hint = (node, text) => node.append("title").text(text);
// what to multiply seconds by, of which this is the most, and the unit
const unitOf = most =>
  most >= 1 || most === 0 ? [1, "s"] : most >= 1e-4 ? [1e3, "ms"] : [1e6, "us"];
const roomOf = (texts, most, size) =>
  Math.min(Math.max(0, ...texts.map(text => wideOf(text, size))), most);
function rule(where, x1, y1, x2, y2, kind = "grid") {
  const line = where.append("line").attr("class", kind);
  return line.attr("x1", x1).attr("y1", y1).attr("x2", x2).attr("y2", y2);
}
function across(where, scale, [top, bottom], asked = {}) {
  // lines at some values of a scale of x, and the values below; as many as have room, the last of
  // which ends no more than `beyond` behind the scale
  const {named = true, show, most = 6, beyond = Infinity} = asked,
    [left, right] = scale.range(),
    middle = (tick, words) => Math.min(scale(tick), right + beyond - wideOf(words) / 2),
    plain = wanted => {
      const format = scale.tickFormat(wanted);
      return tick => (tick === 0 ? "0" : format(tick));
    };
  for (let wanted = most; wanted > 0; wanted--) {
    const ticks = scale.ticks(wanted),
      words = ticks.map(show || plain(wanted)),
      apart = ticks.length > 1 ? scale(ticks[1]) - scale(ticks[0]) : right - left;
    if (wanted > 1 && roomOf(words, Infinity) + 6 > apart) continue;
    ticks.forEach((tick, i) => {
      rule(where, scale(tick), top, scale(tick), bottom);
      if (named) write(where, middle(tick, words[i]), bottom + 14, words[i], {anchor: "middle"});
    });
    return;
  }
}
function legendLines(room, entries) {
  // colours and their names, in as many lines as they need
  const lines = [[]];
  let x = 0;
  for (const [colour, text] of entries) {
    const wide = 15 + wideOf(text) + 14;
    if (x > 0 && x + wide > room) {
      lines.push([]);
      x = 0;
    }
    lines.at(-1).push({colour, text, x});
    x += wide;
  }
  return lines;
}
function legend(where, left, y, room, lines) {
  lines.forEach((line, i) => {
    for (const {colour, text, x} of line) {
      const box = where.append("rect").attr("x", left + x).attr("y", y + 16 * i - 9);
      box.attr("width", 10).attr("height", 10).attr("fill", colour);
      write(where, left + x + 15, y + 16 * i, text, {room: room - x - 15});
    }
  });
}
