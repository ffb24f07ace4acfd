// Controls over runs that were made: a select for whatever differs between them.
const menus = data.choices || [];
const wanted = new Map(); // of a menu the value chosen; not in it: all
const fits = (one, skip) =>
  menus.every(menu => {
    const has = menu.of[runs.indexOf(one)],
      value = wanted.get(menu.name);
    return menu === skip || value === undefined || has < 0 || has === value;
  });
function choiceMenus() {
  const place = d3.select("#choices");
  if (!menus.length && !(data.prices || []).length) {
    place.remove();
    return;
  }
  const label = place.selectAll("label").data(menus).join("label");
  label.append("span").text(menu => `${menu.name} `);
  label
    .append("select")
    .attr("data-choice", menu => menu.name)
    .on("change", (event, menu) => {
      if (event.target.value === "") wanted.delete(menu.name);
      else wanted.set(menu.name, +event.target.value);
      show();
    })
    .selectAll("option")
    .data(menu => [["", "all"], ...menu.values.map((text, i) => [i, text])])
    .join("option")
    .attr("value", o => o[0])
    .text(o => o[1]);
  if ((data.prices || []).length) priceMenu(place);
}
function priceMenu(place) {
  const label = place.append("label");
  label.append("span").text("an OCS port costs ");
  label
    .append("select")
    .attr("id", "price")
    .on("change", event => {
      setPrice(event.target.value === "" ? null : +event.target.value);
    })
    .selectAll("option")
    .data([["", "as listed"], ...data.prices.map((usd, i) => [i, `${usd.toLocaleString("en")} $`])])
    .join("option")
    .attr("value", o => o[0])
    .text(o => o[1]);
}
function setPrice(i) {
  // bills, dollars and pictures were made at each price: those of this one are shown
  state.price = i;
  const key = i === null ? "" : String(i);
  for (const part of document.querySelectorAll("[data-price]"))
    part.hidden = part.dataset.price !== key;
  soon();
}
function followPrice(i) {
  if (i === null || !(data.prices || [])[i]) return;
  at("price").value = i;
  setPrice(i);
}
function possible() {
  // only what some run was made with, beside what else is chosen
  d3.selectAll("#choices select[data-choice]").each(function (menu) {
    const some = runs.filter(one => ofWorld(one) && fits(one, menu));
    const has = new Set(some.map(one => menu.of[runs.indexOf(one)]));
    const value = wanted.get(menu.name);
    d3.select(this)
      .selectAll("option")
      .property("disabled", o => o[0] !== "" && !has.has(o[0]));
    this.value = value === undefined ? "" : value;
  });
}
const choiceWords = () => menus.map(m => wanted.get(m.name)).map(v => (v === undefined ? "" : v));
function followChoices(words) {
  if (!menus.length || words === null) return;
  words.split(".").forEach((word, i) => {
    if (!menus[i]) return;
    wanted.delete(menus[i].name);
    if (word !== "" && menus[i].values[+word] !== undefined) wanted.set(menus[i].name, +word);
  });
  show();
}
