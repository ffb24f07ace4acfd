// Flows in flight of each communication phase, a row a run, on a clock that runs while any is.
const ROW = 110, // units a run
  GUTTER = 22; // between columns
PICTURES.close_ups = (place, {labels, columns, rows, of}, label) => {
  const left = roomOf(labels, 170, 12) + 14 + EDGE,
    wide = (FULL - left - EDGE) / columns.length,
    high = 38 + ROW * labels.length,
    more = of > columns.length ? 20 : 0,
    svg = framed(place, FULL, high + 30 + more, label);
  labels.forEach((text, i) => {
    const y = 38 + ROW * (i + 0.5);
    write(svg, left - 14, y, text, {anchor: "end", room: left - 14, size: 12, ink: true});
  });
  columns.forEach((column, k) => {
    const [factor, unit] = unitOf(column.span_s),
      from = left + k * wide,
      x = d3.scaleLinear([0, 1.03 * factor * column.span_s], [from, from + wide - GUTTER]);
    column.title.forEach((line, i) => {
      headed(svg, from + (wide - GUTTER) / 2, 12 + 15 * i, line, wide - 8);
    });
    rows.forEach((row, i) => {
      const where = svg.append("g").attr("transform", `translate(0,${38 + ROW * i})`),
        named = i === rows.length - 1;
      across(where, x, [16, ROW - 10], {named, most: 6, beyond: GUTTER - 8});
      closeUp(where, row[k], t => x(factor * t), [16, ROW - 10], column.phase);
      write(where, from + wide - GUTTER, 11, row[k].text, {anchor: "end", ink: true});
    });
    write(svg, from + (wide - GUTTER) / 2, high + 22, unit, {anchor: "middle"});
  });
  if (more) {
    const words = `the ${columns.length} longest of ${count(of)} communication phases`;
    write(svg, left, high + 42, words);
  }
};
function closeUp(where, {time, count: flows, most, cut, bands}, x, [top, bottom], phase) {
  const y = d3.scaleLinear([0, most ? 1.25 * most : 1.4 * d3.max(flows)], [bottom, top]),
    area = d3.area().curve(d3.curveStepAfter).x((_, i) => x(time[i])).y0(bottom).y1(y);
  const shape = where.append("path").attr("class", "flows").attr("d", area(flows));
  shape.attr("fill", phaseColour(phase));
  hint(shape, `${count(d3.max(flows))} flows in flight at most`);
  for (const t of cut) rule(where, x(t), top, x(t), bottom, "cut");
  for (const [asked, programmed, usable, epoch, dark, changed] of bands) {
    const words = `rewire ${epoch}: dark ${dark}, ${count(changed)} circuits change`;
    stripe(where, "waits", x(asked), x(usable), top, bottom); // who waits, pales
    hint(stripe(where, "asked", x(asked), x(programmed), top, top + 8), words);
    hint(stripe(where, "dark", x(programmed), x(usable), top, top + 8), words);
  }
}
function stripe(where, kind, left, right, top, bottom) {
  const box = where.append("rect").attr("class", kind).attr("x", left).attr("y", top);
  return box.attr("width", Math.max(right - left, 0)).attr("height", bottom - top);
}
