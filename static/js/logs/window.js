// Shows a long list through a window: at most ROWS of its items are elements, the rest is height.
// Whatever changes above, the line that the reader looks at stays where it is.

const ROWS = 300;
const MARGIN = 80; // items kept ready above and below what is visible

export class Window {
  constructor(scroller, makeElement) {
    this.scroller = scroller;
    this.rows = scroller.querySelector("[data-rows]");
    this.before = scroller.querySelector('[data-pad="before"]');
    this.after = scroller.querySelector('[data-pad="after"]');
    this.makeElement = makeElement;
    this.items = [];
    this.start = 0;
    this.height = 20;
    this.placed = 0; // where this script scrolled to last: all else is the reader
    this.rows.replaceChildren();
  }

  get end() {
    return Math.min(this.start + ROWS, this.items.length);
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return this.end === this.items.length && scrollTop + clientHeight >= scrollHeight - 6;
  }

  // The first line that is wholly or partly visible.
  get top() {
    const edge = this.scroller.getBoundingClientRect().top;
    for (const row of this.rows.children) {
      const box = row.getBoundingClientRect();
      if (box.bottom > edge + 1) return { line: row.line, offset: box.top - edge };
    }
    return null;
  }

  // New items; the reader's place is kept where it is still among them.
  set(items, { shift = 0, isFresh = false } = {}) {
    const top = this.top;
    if (isFresh) this.rows.replaceChildren();
    this.items = items;
    this.start = Math.max(0, Math.min(this.start + shift, items.length - ROWS));
    if (top && (items[this.start] === undefined || !this.#holds(top.line))) {
      const index = items.indexOf(top.line);
      if (index >= 0) this.start = Math.max(0, index - MARGIN);
    }
    this.#draw(top);
  }

  refresh() {
    const top = this.top;
    this.rows.replaceChildren();
    this.#draw(top);
  }

  toEnd() {
    this.start = Math.max(0, this.items.length - ROWS);
    this.#draw(null);
    this.#place(this.scroller.scrollHeight);
  }

  show(line) {
    const index = this.items.indexOf(line);
    if (index < 0) return false;
    this.start = Math.max(0, Math.min(index - ROWS / 2, this.items.length - ROWS));
    this.#draw(null);
    const row = this.rows.children[index - this.start];
    const below = row.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
    this.#place(this.scroller.scrollTop + below - this.scroller.clientHeight / 3);
    return true;
  }

  // Called on scrolling: moves the window when its edge comes near.
  follow() {
    const { scrollTop, clientHeight } = this.scroller;
    const first = this.rows.offsetTop;
    const last = first + this.rows.offsetHeight;
    const away = scrollTop > last || scrollTop + clientHeight < first;
    const near = MARGIN * this.height / 2;
    const up = scrollTop < first + near && this.start > 0;
    const down = scrollTop + clientHeight > last - near && this.end < this.items.length;
    if (!away && !up && !down) return;
    const top = away ? null : this.top;
    const above = (scrollTop - this.before.offsetTop) / this.height;
    const index = top ? this.items.indexOf(top.line) : Math.floor(above);
    this.start = Math.max(0, Math.min(index - ROWS / 3, this.items.length - ROWS)) | 0;
    this.#draw(top);
  }

  #place(scrollTop) {
    this.scroller.scrollTop = scrollTop;
    this.placed = this.scroller.scrollTop;
  }

  #holds(line) {
    for (let index = this.start; index < this.end; index += 1) if (this.items[index] === line) return true;
    return false;
  }

  #draw(top) {
    const wanted = this.items.slice(this.start, this.end);
    const keep = new Set(wanted);
    for (const row of [...this.rows.children]) if (!keep.has(row.line)) row.remove();
    let at = this.rows.firstElementChild;
    for (const line of wanted) {
      if (at?.line === line) at = at.nextElementSibling;
      else this.rows.insertBefore(this.makeElement(line), at);
    }
    if (wanted.length) this.height = this.rows.offsetHeight / wanted.length || this.height;
    this.before.style.height = `${this.start * this.height}px`;
    this.after.style.height = `${(this.items.length - this.end) * this.height}px`;
    if (!top) return;
    for (const row of this.rows.children) {
      if (row.line !== top.line) continue;
      const edge = this.scroller.getBoundingClientRect().top;
      const moved = row.getBoundingClientRect().top - edge - top.offset;
      if (Math.abs(moved) >= 1) this.#place(this.scroller.scrollTop + moved);
      return;
    }
  }
}
