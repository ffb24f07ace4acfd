// How much: runs side by side as bars, bytes from rack to rack, how full the links are.
const BAR = 40; // units a run
const PANELS = 30; // units between two of them
PICTURES.bars = (place, {labels, panels, colours}, label) => {
  const left = roomOf(labels, 190, 12) + 10 + EDGE,
    wide = (FULL - left - EDGE - (panels.length - 1) * PANELS) / panels.length,
    high = BAR * labels.length,
    colourOf = name => own(colours, name) || phaseColour(name),
    keys = panels.map(panel => legendLines(wide, barKeys(panel, colourOf))),
    foot = 24 + high + 36,
    svg = framed(place, FULL, foot + 16 * d3.max(keys, lines => lines.length), label);
  const row = {anchor: "end", room: left - 10, size: 12, ink: true};
  labels.forEach((text, i) => write(svg, left - 10, barAt(i) + 4, text, row));
  panels.forEach((panel, i) => {
    const from = left + i * (wide + PANELS);
    bars(svg.append("g"), panel, from, wide, colourOf);
    legend(svg, from, foot, wide, keys[i]);
  });
};
const barAt = i => 24 + BAR * (i + 0.5);
function barKeys({stacks}, colourOf) {
  const names = new Set(stacks.flat().filter(part => part[1] > 0).map(part => part[0]));
  return [...names].map(one => [colourOf(one), name(one)]);
}
function laidOut(stack, range, parts) {
  // where the parts of a bar begin, and their intervals; where its text stands, and the last end
  const from = [],
    within = new Map(parts),
    whole = stack.reduce((sum, [, value]) => (from.push(sum), sum + value), 0),
    ends = stack.map(([one], k) => (within.get(one) ? from[k] + within.get(one)[1] : 0)),
    text = Math.max(whole, range ? range[1] : 0);
  return {from, within, text, last: Math.max(text, ...ends)};
}
function bars(where, {title, stacks, texts, ranges, parts}, left, wide, colourOf) {
  const room = wide - 12, // the last value of the axis stands half behind it
    laid = stacks.map((stack, i) => laidOut(stack, ranges[i], parts[i])),
    withText = ({text}, i) => (text * room) / (room - wideOf(texts[i]) - 8),
    most = d3.max(laid, (one, i) => Math.max(one.last, withText(one, i))),
    x = d3.scaleLinear([0, most || 1], [left, left + room]),
    high = BAR * stacks.length;
  headed(where, left + wide / 2, 12, title, wide);
  across(where, x, [24, 24 + high], {beyond: PANELS - 8});
  stacks.forEach((stack, i) => {
    const y = barAt(i);
    stack.forEach(([one, value], k) => {
      const from = laid[i].from[k],
        within = laid[i].within.get(one),
        bar = where.append("rect").attr("x", x(from)).attr("y", y - 12.5).attr("height", 25);
      bar.attr("width", x(from + value) - x(from)).attr("fill", colourOf(one));
      hint(bar, `${name(one)}: ${figure(value)}`);
      if (within)
        interval(where, within.map(end => x(from + end)), y + 15 + 2 * (k % 3), name(one), within)
          .style("stroke", colourOf(one));
    });
    if (ranges[i]) interval(where, ranges[i].map(x), y, "step", ranges[i], 4);
    write(where, x(laid[i].text) + 5, y + 4, texts[i], {ink: true});
  });
}
function interval(where, [from, to], y, what, said, half = 2.5) {
  // where eight in ten measured ones would be
  const line = where.append("path").attr("class", "interval");
  line.attr("d", `M${from},${y - half}v${2 * half}m0,${-half}H${to}m0,${-half}v${2 * half}`);
  const [low, high] = said.map(d3.format(",.2~r"));
  hint(line, `${what}, 80 % within ${low} to ${high}`);
  return line;
}
PICTURES.demand = (place, {unit, names, phases, of}, label) => {
  const wide = 264,
    left = roomOf(names, 70) + 24,
    side = wide - left - 16, // the last name below stands half behind it
    more = of > phases.length ? 20 : 0,
    svg = framed(place, wide * phases.length, 28 + side + 40 + more, label);
  if (more) {
    const words = `the first ${phases.length} of ${count(of)} phases that send any`;
    write(svg, left, 28 + side + 52, words);
  }
  phases.forEach((one, i) => {
    const where = svg.append("g").attr("transform", `translate(${wide * i},0)`);
    heat(where, one, names, unit, left, side);
    if (!i) {
      const y = 28 + side / 2,
        turned = write(where, 9, y, `from ${unit}`, {anchor: "middle"});
      turned.attr("transform", `rotate(-90,9,${y})`);
    }
  });
};
function heat(where, {title, phase, sent}, names, unit, left, side) {
  const [from, to, sizes] = sent,
    most = d3.max(sizes),
    cell = side / names.length,
    top = 28;
  headed(where, left + side / 2, 16, title, side + left);
  const cells = where.append("g").attr("fill", phaseColour(phase));
  sizes.forEach((size, k) => {
    const box = cells.append("rect").attr("x", left + cell * to[k]).attr("y", top + cell * from[k]);
    box.attr("width", cell).attr("height", cell).attr("opacity", 0.12 + (0.88 * size) / most);
    hint(box, `${names[from[k]]} to ${names[to[k]]}: ${bytes(size)}`);
  });
  const frame = where.append("rect").attr("class", "frame").attr("x", left).attr("y", top);
  frame.attr("width", side).attr("height", side);
  const every = room => Math.max(Math.ceil(names.length / 8), Math.ceil(room / cell)),
    beside = every(13),
    below = every(roomOf(names, 70) + 6);
  names.forEach((one, i) => {
    const middle = (i + 0.5) * cell;
    if (i % beside === 0)
      write(where, left - 5, top + middle + 4, one, {anchor: "end", room: 70, ink: true});
    if (i % below === 0)
      write(where, left + middle, top + side + 14, one, {anchor: "middle", room: 70});
  });
  const foot = `to ${unit}; darkest ${bytes(most)}`;
  write(where, left + side / 2, top + side + 32, foot, {anchor: "middle"});
}
const TIER = 38; // units
PICTURES.load = (place, {labels, tiers, used}, label) => {
  const columns = Math.min(labels.length, 4),
    left = roomOf(tiers, 180) + 12 + EDGE,
    wide = (FULL - left - EDGE) / columns,
    lines = d3.range(0, labels.length, columns).map(first => {
      const some = d3.range(first, Math.min(first + columns, labels.length));
      return {some, own: d3.range(tiers.length).filter(k => some.some(i => used[i][k]))};
    }),
    highOf = line => TIER * line.own.length + 62,
    svg = framed(place, FULL, d3.sum(lines, highOf), label);
  let y = 0;
  for (const line of lines) {
    const where = svg.append("g").attr("transform", `translate(0,${y})`),
      names = line.own.map(k => tiers[k]);
    names.forEach((tier, k) =>
      write(where, left - 12, tierAt(k) + 4, tier, {anchor: "end", room: left - 12, ink: true}),
    );
    line.some.forEach((i, column) => {
      const mine = line.own.map(k => used[i][k]);
      loads(where, labels[i], names, mine, left + wide * column, wide - 60);
    });
    y += highOf(line);
  }
};
const tierAt = i => 26 + TIER * (i + 0.5);
function loads(where, title, tiers, used, left, wide) {
  const top = Math.max(1, ...used.filter(Boolean).map(one => one.highest)),
    x = d3.scaleLinear([0, top], [left + 6, left + 6 + wide]),
    bottom = 26 + TIER * tiers.length;
  headed(where, left + 6 + wide / 2, 14, title, wide + 40);
  across(where, x, [26, bottom], {show: percent, most: 5});
  used.forEach((one, i) => {
    if (!one) return;
    const y = tierAt(i);
    if (one.dots) {
      const dots = where.append("g").attr("class", "dots");
      one.dots.forEach((share, k) => {
        const lift = (((k * 0.6180339887) % 1) - 0.5) * 0.55 * TIER;
        dots.append("circle").attr("cx", x(share)).attr("cy", y + lift).attr("r", 2);
      });
    } else {
      // the root, so that the few are seen beside the many
      const most = d3.max(one.bins),
        half = n => 0.36 * TIER * Math.sqrt(n / most),
        step = one.top / one.bins.length,
        area = d3.area().curve(d3.curveStepAfter).x((_, k) => x(k * step));
      area.y0(n => y - half(n)).y1(n => y + half(n));
      where.append("path").attr("class", "dots").attr("d", area([...one.bins, one.bins.at(-1)]));
    }
    const mean = rule(where, x(one.mean), y - 14, x(one.mean), y + 14, "mean"),
      figures = [one.mean, one.highest].map(d3.format(".1%"));
    hint(
      mean,
      `${tiers[i]}: mean ${figures[0]}, highest ${figures[1]}, ${count(one.links)} directed links`,
    );
    write(where, x.range()[1] + 8, y + 4, percent(one.highest));
  });
}
