// The cells of a store: a table whose rows the controls of choices.js choose.
const runs = data.runs;
const ofWorld = () => true; // a sweep is of one engine
function show() {
  if (!runs.some(one => fits(one))) wanted.clear(); // no such run was made
  let left = 0;
  document.querySelectorAll("#cells tbody tr").forEach((row, i) => {
    row.hidden = !fits(runs[i]);
    left += !row.hidden;
  });
  possible();
  at("left").textContent = `${left} of ${runs.length} cells`;
  try {
    history.replaceState(null, "", wanted.size ? `#only=${choiceWords().join(".")}` : "#");
  } catch {
    /* a page in a frame has no address of its own */
  }
}
addEventListener("DOMContentLoaded", () => {
  const only = new URLSearchParams(location.hash.slice(1)).get("only");
  choiceMenus();
  if (menus.length) at("choices").hidden = false;
  followChoices(only);
  show();
  document.documentElement.dataset.ready = "yes";
});
