// What is paid for a step's speed: step time against dollars, of the network and of the whole bill.
//
//   s |    o dear, slow              a point is a fabric under a policy; grey: another is as cheap
//     | *-----.                      and as fast, and better in one; the line is the front
//     |       *----------* fast
//     +------------------- $
//
// Front and grey are of each panel's own dollars. A bound (`ideal`) is a dashed line.
const DOLLARS = [
  ["the network's price (k$)", 1e3],
  ["whole bill, dollars a step", 1],
];
const NEGLIGIBLE = 1e-6; // of a value: a difference that is none (compare.py)
const RECIPE = 410; // units high
const POINT = 6; // from the middle of a point to its edge, and room
const NEARBY = 8, // between a point and its name
  FAR = 40, // where there is no room so near
  FARTHEST = 15, // lines that a name may stand above or below its point
  CLOSE = 12, // a name farther off gets a leader
  DOTS = 12; // of a leader that no name may cover
PICTURES.front = (place, points, label) => {
  const traffics = [...new Set(points.map(point => point.traffic))],
    svg = framed(place, FULL, RECIPE * traffics.length, label);
  traffics.forEach((traffic, row) => {
    const where = svg.append("g").attr("transform", `translate(0,${RECIPE * row})`),
      mine = points.filter(point => point.traffic === traffic);
    write(where, 0, 14, traffic, {room: FULL, size: 13, ink: true});
    DOLLARS.forEach((dollars, i) => tradeOff(where, mine, i, (i * FULL) / 2));
  });
};
function tradeOff(where, points, which, from) {
  const [words, unit] = DOLLARS[which],
    [top, bottom] = [30, RECIPE - 52],
    right = from + FULL / 2 - 16,
    priced = points.filter(point => point.usd[which] !== null && !point.bound),
    bounds = [...new Set(points.filter(point => point.bound).map(point => point.step_s))],
    lasts = priced.flatMap(point => [point.step_s, ...spanOf(point)]),
    y = d3.scaleLinear(padded([...lasts, ...bounds], 0.16), [bottom, top]),
    [factor, inUnit] = unitOf(d3.max([...lasts, ...bounds]) || 0),
    shown = y.copy().domain(y.domain().map(step => factor * step)),
    ticks = shown.ticks(8),
    show = shown.tickFormat(8),
    left = from + 24 + roomOf(ticks.map(show), 120);
  write(where, (left + right) / 2, bottom + 36, words, {anchor: "middle", size: 12});
  if (!priced.length) {
    write(where, (left + right) / 2, (top + bottom) / 2, "no price", {anchor: "middle"});
    return;
  }
  const paid = priced.map(point => point.usd[which] / unit),
    x = d3.scaleLinear(padded(paid, 0.14), [left, right]);
  ticks.forEach(tick => {
    rule(where, left, shown(tick), right, shown(tick));
    write(where, left - 6, shown(tick) + 4, show(tick), {anchor: "end", ink: true});
  });
  across(where.append("g").attr("class", "bare"), x, [top, bottom], {beyond: 14});
  const middle = (top + bottom) / 2,
    turned = write(where, from + 10, middle, `step time (${inUnit})`, {anchor: "middle", size: 12});
  turned.attr("transform", `rotate(-90,${from + 10},${middle})`);
  const dots = priced.map((point, i) => ({
    ...point,
    best: point.front[which],
    at: [x(paid[i]), y(point.step_s)],
  }));
  const best = dots.filter(dot => dot.best).map(dot => dot.at),
    corners = stairs(best.sort((a, b) => a[0] - b[0] || b[1] - a[1])),
    lines = [...d3.pairs(corners), ...bounds.map(step => [left, right].map(end => [end, y(step)]))];
  where.append("path").attr("class", "stairs").attr("d", d3.line()(corners));
  for (const step of bounds) rule(where, left, y(step), right, y(step), "bound");
  dots.forEach((dot, i) => mark(where, dot, y, `${figure(paid[i])}: ${words}`));
  nameDots(where, dots, lines, [left, top, right, bottom]);
}
const spanOf = ({span_s: [least, most]}) => (most > least ? [least, most] : []);
function padded(values, share) {
  // what is as near as to be as fast, or as cheap, for the front stands side by side
  const [least, most] = d3.extent(values),
    spread = most - least > NEGLIGIBLE * Math.abs(most) ? most - least : Math.abs(most),
    pad = share * spread || 1;
  return [least - pad, most + pad];
}
function stairs(front) {
  // the corners of a line that goes right, then down, from point to point
  return front.flatMap((spot, i) => (i ? [[spot[0], front[i - 1][1]], spot] : [spot]));
}
function mark(where, dot, y, paid) {
  const kind = dot.best ? (dot.optical ? "optical" : "electrical") : "beaten",
    [cx, cy] = dot.at,
    span = spanOf(dot);
  if (span.length) rule(where, cx, y(span[0]), cx, y(span[1]), `span ${kind}`);
  const spot = where.append("circle").attr("class", `point ${kind}`).attr("cx", cx).attr("cy", cy);
  spot.attr("r", dot.best ? 5 : 4);
  hint(spot, `${dot.label}: ${seconds(dot.step_s)}, ${paid}`);
}
function nameDots(where, dots, lines, frame) {
  // each name where neither a point nor a line nor another name is: as near as there is room in
  // the panel; the front's come first
  const taken = dots.map(({at: spot}) => boxAround([spot, spot], POINT)),
    named = [];
  taken.push(...lines.map(line => boxAround(line, 1)));
  const order = [...dots].sort((a, b) => b.best - a.best || a.at[0] - b.at[0] || b.at[1] - a.at[1]);
  for (const {at: spot, label, best} of order) {
    const text = fitted(label, 200),
      boxes = [...boxesBy(spot, wideOf(text) + 4, SIZE + 7)];
    boxes.sort((a, b) => off(spot, a) - off(spot, b));
    const within = boxes.filter(one => inside(one, frame)),
      free = one => !anyMeet([one], taken) && !anyMeet(dotted(leader(spot, one)), named),
      box = within.find(free) || within.find(one => !anyMeet([one], named)) || boxes[0];
    const along = leader(spot, box);
    for (const [a, b] of along) rule(where, ...a, ...b, "leader");
    const node = write(where, box[0], (box[1] + box[3]) / 2 + 4, text);
    node.attr("class", best ? "ink over" : "over");
    if (text !== label) hint(node, label);
    named.push(box);
    taken.push(box, ...dotted(along));
  }
}
function* boxesBy([x, y], wide, high) {
  // where a name may stand
  const sides = [NEARBY, -NEARBY - wide, -wide / 2, FAR, -FAR - wide, 2 * FAR, -2 * FAR - wide];
  for (let ring = 0; ring < FARTHEST; ring++)
    for (const lift of ring ? [ring, -ring] : [0])
      for (const side of ring ? sides : sides.slice(0, 2)) {
        const [left, middle] = [x + side, y + lift * high];
        yield [left, middle - high / 2, left + wide, middle + high / 2];
      }
}
function leader(spot, box) {
  // the line from a point to a name that stands far off, if it does
  const nearest = [0, 1].map(i => Math.min(Math.max(spot[i], box[i]), box[i + 2]));
  return off(spot, box) > CLOSE ? [[spot, nearest]] : [];
}
const off = ([x, y], box) =>
  Math.max(box[0] - x, x - box[2], 0) + Math.max(box[1] - y, y - box[3], 0);
const dotted = lines =>
  // small boxes along lines, their ends left out
  lines.flatMap(([a, b]) =>
    d3.range(1, DOTS).map(i => {
      const spot = [0, 1].map(k => a[k] + (i / DOTS) * (b[k] - a[k]));
      return boxAround([spot, spot], 1);
    }),
  );
function boxAround([[a, b], [c, d]], margin) {
  const [left, right] = [Math.min(a, c) - margin, Math.max(a, c) + margin];
  return [left, Math.min(b, d) - margin, right, Math.max(b, d) + margin];
}
const inside = (box, frame) =>
  box[0] >= frame[0] && box[2] <= frame[2] && box[1] >= frame[1] && box[3] <= frame[3];
const anyMeet = (some, others) =>
  some.some(a => others.some(b => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]));
