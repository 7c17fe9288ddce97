// [data-figure] holds a Plotly figure as JSON. It is drawn after first paint, in the page's own colours, and again
// when these change or a live region brings another. A trace's meta.tone names its colour.

const dark = matchMedia("(prefers-color-scheme: dark)");
const CONFIG = { displayModeBar: false, responsive: true, showTips: false, doubleClick: false };

// What a custom property gives, light or dark: only an element in the page knows.
function colours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["text", "muted", "line", "control", "raised", "accent", "second"];
  const found = Object.fromEntries(names.map((name) => [name, read(name)]));
  found.family = getComputedStyle(document.documentElement).fontFamily;
  probe.remove();
  return found;
}

function dressTrace(trace, look) {
  const colour = look[trace.meta?.tone] ?? look.accent;
  return {
    ...trace,
    marker: { ...trace.marker, color: colour },
    line: { ...trace.line, color: colour },
  };
}

function dressAxis(axis, look) {
  return { ...axis, gridcolor: look.line, linecolor: look.control, zerolinecolor: look.line, tickcolor: look.control };
}

function dress(figure, look) {
  const layout = {
    ...figure.layout,
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: look.family, size: 12, color: look.muted },
    hoverlabel: { bgcolor: look.raised, bordercolor: look.control, font: { family: look.family, color: look.text } },
  };
  for (const name of Object.keys(layout)) if (/^[xy]axis\d*$/.test(name)) layout[name] = dressAxis(layout[name], look);
  layout.shapes = (layout.shapes ?? []).map((shape) => ({ ...shape, line: { ...shape.line, color: look.control } }));
  layout.annotations = (layout.annotations ?? []).map((note) => ({ ...note, font: { ...note.font, color: look.text } }));
  return { data: figure.data.map((trace) => dressTrace(trace, look)), layout };
}

function draw(place, look = colours()) {
  const { data, layout } = dress(JSON.parse(place.dataset.figure), look);
  globalThis.Plotly.react(place, data, layout, CONFIG);
}

function drawAll(root = document) {
  const places = [...root.querySelectorAll("[data-figure]")];
  if (!places.length || !globalThis.Plotly) return;
  const look = colours();
  for (const place of places) draw(place, look);
}

requestAnimationFrame(() => setTimeout(drawAll, 0));
document.addEventListener("htmx:beforeSwap", (event) => {
  for (const place of event.detail.target.querySelectorAll?.("[data-figure]") ?? []) globalThis.Plotly?.purge(place);
});
document.addEventListener("htmx:afterSwap", () => drawAll());
// A chart in a folded part has no width until it is opened.
document.addEventListener("toggle", (event) => { if (event.target.open) drawAll(event.target); }, true);
dark.addEventListener("change", () => drawAll());
