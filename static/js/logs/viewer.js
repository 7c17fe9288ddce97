// The log viewer: brings store, view, stream, filter and marks together. Bound to [data-log].
import { announce } from "../announce.js";
import { LinesApi } from "./api.js";
import { Edges } from "./edges.js";
import { FilterForm, makeFilter } from "./filter.js";
import { Follow } from "./follow.js";
import { Jump } from "./jump.js";
import { bindKeys } from "./keys.js";
import { Loader } from "./loader.js";
import { Marks } from "./marks.js";
import { asText } from "./rows.js";
import { makeSteps } from "./steps.js";
import { Store } from "./store.js";
import { Taste } from "./taste.js";
import { View } from "./view.js";

function start(root) {
  const find = (selector) => root.querySelector(selector);
  const scroller = find("[data-scroller]");
  const store = new Store();
  const marks = new Marks(Marks.read(root), () => { view.window.refresh(); tellAddress(); tellCopy(); });
  const taste = new Taste(find("[data-options]"), scroller, () => { view.window.refresh(); follow.stick(); });
  const view = new View(scroller, store, marks, taste);
  const api = new LinesApi(root.dataset.lines, root.dataset.source);
  const form = new FilterForm(find("[data-filter]"), () => applyFilter());
  const edges = new Edges(root, store, view);
  const follow = new Follow(root, view, store, {
    toLatest: () => loader.latest(),
    onResume: () => {
      if (!marks.range && jump.at === null) return;
      jump.clear();
      marks.clear();
    },
  });
  edges.onMove = () => follow.stick();
  const loader = new Loader(root, { api, store, view, form, follow, edges, taste, onDraw: tellFound });

  const jump = new Jump(root, {
    isLocal: () => taste.timeStyle === "local",
    here: () => (view.window.top?.line ?? store.lines.at(-1))?.at,
    go: async (at) => {
      marks.clear();
      const line = await loader.toTime(at);
      if (line) announce(`Line ${line.n} of ${line.k}`);
      scroller.focus({ preventScroll: true });
    },
  });

  function applyFilter() {
    const filter = makeFilter(form.read());
    form.tellProblem(filter.problem);
    const isWhole = !filter.isOn && store.isSparse;
    view.rebuild(filter);
    follow.stick();
    tellFound();
    tellAddress();
    tellContext();
    if (isWhole) loader.latest();
    else loader.fillUp();
  }

  function tellFound(place = 0) {
    const { filter } = view;
    form.showCounts(store.lines);
    edges.tell();
    let text = filter.problem;
    if (filter.hasText) {
      const count = view.hits().length;
      const lines = `${count.toLocaleString("en")} line${count === 1 ? "" : "s"}`;
      text = place ? `${place.toLocaleString("en")} of ${lines}` : lines;
    }
    find("[data-found]").textContent = text;
    const link = find("[data-filtered]");
    link.hidden = !filter.isOn;
    const query = new URLSearchParams([...new URLSearchParams(root.dataset.source), ...form.parameters()]);
    link.href = `${root.dataset.download}?${query}`;
  }

  function tellAddress() {
    const source = Object.fromEntries(new URLSearchParams(root.dataset.source));
    const place = new URLSearchParams({ ...(marks.range ? marks.parameters : { ...source, ...jump.parameters }) });
    const query = new URLSearchParams([...place, ...form.parameters()]);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  }

  function tellCopy() {
    const { range } = marks;
    const label = range && range.from !== range.to ? `Copy ${range.to - range.from + 1} lines` : "Copy line";
    const button = find("[data-copy-label]");
    button.textContent = range ? label : "Copy lines";
    delete button.parentElement.dataset.label; // copy.js keeps the label that it comes back to
    tellContext();
  }

  // Among matches only, a marked line can be shown between its neighbours.
  function tellContext() {
    find("[data-context]").hidden = !(marks.range && view.filter.isOn && form.read().mode === "only");
  }

  find("[data-copy-from]").addEventListener("click", () => {
    const lines = marks.range ? store.lines.filter((line) => marks.has(line)) : view.shown;
    document.getElementById("log-copy").value = lines.map(asText).join("\n");
  });
  find("[data-context]").addEventListener("click", () => {
    const line = store.lines.find((each) => marks.has(each));
    form.setMode("highlight");
    form.clearLevels();
    applyFilter();
    if (line) view.goTo(line);
    scroller.focus({ preventScroll: true });
  });
  scroller.addEventListener("click", (event) => {
    const number = event.target.closest(".log-number");
    if (!number || event.ctrlKey || event.metaKey || !number.search) return;
    event.preventDefault();
    follow.pause();
    marks.take(number.closest(".log-row").line, event.shiftKey);
  });

  const step = makeSteps({ view, follow, marks, tellFound });
  find("[data-next]").addEventListener("click", () => step.match(1));
  find("[data-previous]").addEventListener("click", () => step.match(-1));
  bindKeys({
    f: () => follow.toggle(),
    t: () => jump.open(),
    w: () => taste.toggleWrap(),
    "+": () => taste.resize(1),
    "-": () => taste.resize(-1),
    n: () => step.match(1),
    N: () => step.match(-1),
    l: () => step.mark(false),
    L: () => step.mark(true),
    "[": () => step.error(-1),
    "]": () => step.error(1),
  });

  for (const part of root.querySelectorAll("[data-script-only], [data-follow], [data-log-state]")) part.hidden = false;
  for (const part of root.querySelectorAll("[data-no-script]")) part.hidden = true;
  view.filter = makeFilter(form.read());
  form.tellProblem(view.filter.problem);
  tellCopy();
  loader.begin(marks.range, jump.at);
}

const root = document.querySelector("[data-log]");
if (root) start(root);
