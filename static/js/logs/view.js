// What is shown of the lines in memory: filter, marks, the current match, the window over them.
import { makeFilter } from "./filter.js";
import { makeRow } from "./rows.js";
import { Window } from "./window.js";

export class View {
  constructor(scroller, store, marks, taste) {
    this.store = store;
    this.marks = marks;
    this.filter = makeFilter({ text: "", levels: [], mode: "only" });
    this.current = null;
    this.window = new Window(scroller, (line) => makeRow(line, {
      matches: this.filter.matches(line),
      times: taste.timeStyle,
      isMarked: this.marks.has(line),
      isCurrent: line === this.current,
    }));
  }

  get shown() {
    return this.window.items;
  }

  // After a change of the filter or of everything in memory.
  rebuild(filter = this.filter) {
    this.filter = filter;
    const kept = this.#kept(this.store.lines);
    if (!kept.includes(this.current)) this.current = null;
    this.window.set(kept, { isFresh: true });
  }

  appended(fresh, gone) {
    const kept = this.#kept(fresh);
    const left = gone.length ? new Set(gone) : null;
    const items = left ? this.shown.filter((line) => !left.has(line)) : this.shown;
    const shift = items.length - this.shown.length;
    this.window.set(items.concat(kept), { shift });
    return kept.length;
  }

  prepended(lines, gone) {
    const kept = this.#kept(lines);
    const left = new Set(gone);
    const items = gone.length ? this.shown.filter((line) => !left.has(line)) : this.shown;
    this.window.set(kept.concat(items), { shift: kept.length });
    return kept.length;
  }

  #kept(lines) {
    return this.filter.isOn ? lines.filter(this.filter.keeps) : lines.slice();
  }

  // Lines that a step goes through: matches, or entries that are errors.
  hits() {
    return this.shown.filter(this.filter.hits);
  }

  errors() {
    return this.shown.filter((line) => line.h && (line.l === "E" || line.l === "F"));
  }

  // Goes to the next (or previous) of `lines` from where the reader is; gives its place among them.
  step(lines, direction) {
    if (lines.length === 0) return 0;
    const from = this.shown.indexOf(this.current ?? this.window.top?.line);
    const places = lines.map((line) => this.shown.indexOf(line));
    let at = direction > 0
      ? places.findIndex((place) => place > from || (place === from && !this.current))
      : places.findLastIndex((place) => place < from);
    if (at < 0) at = direction > 0 ? 0 : lines.length - 1; // round the end
    this.goTo(lines[at]);
    return at + 1;
  }

  goTo(line) {
    this.current = line;
    this.window.refresh();
    this.window.show(line);
  }
}
