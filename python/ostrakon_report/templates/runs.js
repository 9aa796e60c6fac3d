"use strict";
const grid = {first: {{ grid.first }}, width: {{ grid.width }}, columns: {{ grid.columns }}};
const labels = {{ labels | tojson }};
const count = n => n.toLocaleString("en");
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
function shown(value, kind) {
  if (kind === "percent") return (100 * value).toPrecision(4) + " %";
  if (kind === "bytes") {
    let i = 0;
    for (; value >= 1024 && i < units.length - 1; ++i) value /= 1024;
    return value.toPrecision(4) + " " + units[i];
  }
  return Math.abs(value) >= 1000 ? count(Math.round(value)) : String(+value.toPrecision(4));
}
// The index of the last column of a curve up to this one; -1 if there is none.
function indexOf(curve, column) {
  if (!Array.isArray(curve.c)) return Math.min(column - curve.c, curve.k - 1);
  let i = curve.c.length - 1;
  while (i >= 0 && curve.c[i] > column) --i;
  return i;
}
const at = (values, i) => Array.isArray(values) ? values[i] : values;
const steps = column => {
  const begin = Math.ceil(grid.first + column * grid.width);
  const end = Math.max(begin, Math.ceil(grid.first + (column + 1) * grid.width) - 1);
  return begin === end ? "step " + count(begin) : "steps " + count(begin) + " to " + count(end);
};
for (const figure of document.querySelectorAll("figure")) {
  const curves = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot"), line = figure.querySelector(".at"), readout = figure.querySelector(".readout");
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    const column = Math.max(0, Math.min(grid.columns - 1, Math.floor((event.clientX - box.left) / box.width * grid.columns)));
    line.style.display = "block";
    line.style.left = 100 * (column + 0.5) / grid.columns + "%";
    readout.replaceChildren(steps(column) + ":  ");
    for (const curve of curves) {
      const i = indexOf(curve, column);
      if (i < 0 || document.body.classList.contains("off" + curve.r)) continue;
      const span = document.createElement("span"), key = document.createElement("i");
      key.className = "key r" + curve.r;
      let text = " " + (labels.length > 1 ? labels[curve.r] + " " : "") + (curve.n ? curve.n + " " : "");
      text += shown(at(curve.m, i), figure.dataset.kind);
      if (curve.a !== undefined)
        text += " (" + shown(at(curve.a, i), figure.dataset.kind) + " to " + shown(at(curve.b, i), figure.dataset.kind) + ")";
      const found = Array.isArray(curve.c) ? curve.c[i] : curve.c + i;
      if (found !== column) text += " at " + steps(found);
      span.append(key, text);
      readout.append(span);
    }
  });
  plot.addEventListener("pointerleave", () => { line.style.display = "none"; readout.replaceChildren(); });
}
for (const box of document.querySelectorAll("[data-run]"))
  box.addEventListener("change", () => document.body.classList.toggle("off" + box.dataset.run, !box.checked));
