// The log viewer: brings store, view, stream, filter and marks together. Bound to [data-log].
import { announce } from "../announce.js";
import { LinesApi } from "./api.js";
import { Edges } from "./edges.js";
import { FilterForm, makeFilter } from "./filter.js";
import { Follow } from "./follow.js";
import { bindKeys } from "./keys.js";
import { Loader } from "./loader.js";
import { Marks } from "./marks.js";
import { asText } from "./rows.js";
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
    onResume: () => { if (marks.range) marks.clear(); },
  });
  edges.onMove = () => follow.stick();
  const loader = new Loader(root, { api, store, view, form, follow, edges, taste, onDraw: tellFound });

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
    const place = new URLSearchParams({ ...(marks.range ? {} : source), ...marks.parameters });
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

  const go = (lines, direction) => {
    follow.pause();
    tellFound(view.step(lines, direction));
  };
  const stepError = (direction) => {
    const lines = view.errors();
    if (!lines.length) announce("No errors among the lines in the page");
    else go(lines, direction);
  };
  // The line that was stepped to, else the first in sight.
  const markHere = (isExtended) => {
    const line = view.current ?? view.window.top?.line;
    if (!line || line.k === "build") return;
    follow.pause();
    marks.take(line, isExtended);
    announce(`Line ${line.n} of ${line.k} marked; the address leads to it`);
  };
  find("[data-next]").addEventListener("click", () => go(view.hits(), 1));
  find("[data-previous]").addEventListener("click", () => go(view.hits(), -1));
  bindKeys({
    f: () => follow.toggle(),
    w: () => taste.toggleWrap(),
    n: () => go(view.hits(), 1),
    N: () => go(view.hits(), -1),
    l: () => markHere(false),
    L: () => markHere(true),
    "[": () => stepError(-1),
    "]": () => stepError(1),
  });

  for (const part of root.querySelectorAll("[data-script-only], [data-follow], [data-log-state]")) part.hidden = false;
  for (const part of root.querySelectorAll("[data-no-script]")) part.hidden = true;
  view.filter = makeFilter(form.read());
  form.tellProblem(view.filter.problem);
  tellCopy();
  loader.begin(marks.range);
}

const root = document.querySelector("[data-log]");
if (root) start(root);
