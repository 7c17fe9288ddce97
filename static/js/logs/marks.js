// Marked lines: a click on a number makes the permalink, shift-click a range of the same replica.

export class Marks {
  constructor(range, onChange) {
    this.range = range; // {key, from, to} or null
    this.onChange = onChange;
  }

  static read(root) {
    const [from, to] = (root.dataset.line || "").split("-").map(Number);
    const key = new URLSearchParams(root.dataset.source).get("replica");
    return from && key ? { key, from, to: to || from } : null;
  }

  has(line) {
    const { range } = this;
    return range !== null && line.k === range.key && line.n >= range.from && line.n <= range.to;
  }

  take(line, isExtended) {
    const { range } = this;
    if (isExtended && range?.key === line.k) {
      const fixed = line.n < range.from ? range.to : range.from;
      this.range = { key: line.k, from: Math.min(fixed, line.n), to: Math.max(fixed, line.n) };
    } else {
      this.range = { key: line.k, from: line.n, to: line.n };
    }
    this.onChange();
  }

  clear() {
    this.range = null;
    this.onChange();
  }

  get parameters() {
    if (!this.range) return {};
    const { key, from, to } = this.range;
    return { replica: key, line: from === to ? `${from}` : `${from}-${to}` };
  }
}
