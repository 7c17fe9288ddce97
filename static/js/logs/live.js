// The live end: arrivals are drawn together, connections told, errors announced.
import { announce } from "../announce.js";
import { CAP } from "./store.js";
import { Stream } from "./stream.js";

const DRAW_MS = 150;
const STALE_MS = 10_000;

export class Live {
  constructor(root, parts) {
    Object.assign(this, parts);
    this.waiting = [];
    this.drawTimer = 0;
    this.lostAt = 0;
    this.stream = new Stream(root.dataset.stream, root.dataset.source, {
      state: (name) => this.#connection(name),
      lines: (lines) => this.#arrive(lines),
      notice: (text) => { this.edges.note(text); announce(text); },
      ended: (text) => this.#end(text),
    });
  }

  open(cursor) {
    this.stream.open(cursor);
  }

  close() {
    this.stream.close();
    this.waiting = [];
  }

  #end(text) {
    this.#draw();
    this.edges.end(text);
    this.follow.setConnection("ended");
    this.follow.stick();
    announce(text);
  }

  #arrive(lines) {
    this.waiting.push(...lines);
    this.drawTimer ||= setTimeout(() => this.#draw(), DRAW_MS);
  }

  #draw() {
    clearTimeout(this.drawTimer);
    this.drawTimer = 0;
    const lines = this.waiting.splice(0);
    if (lines.length === 0) return;
    if (!this.follow.isOn && this.store.lines.length + lines.length > CAP) {
      this.store.skip(lines); // what the reader looks at stays; these are fetched when wanted
      this.stream.close();
      this.follow.tell();
      return;
    }
    const { fresh, gone } = this.store.append(lines);
    const count = this.view.appended(fresh, gone);
    this.follow.stick();
    this.follow.came(count);
    this.edges.arrived();
    this.onDraw();
    const errors = fresh.filter((line) => line.h && (line.l === "E" || line.l === "F"));
    if (errors.length && this.taste.announcesErrors) {
      announce(`${errors.length} new error${errors.length === 1 ? "" : "s"}: ${errors.at(-1).t.slice(0, 200)}`);
    }
  }

  #connection(name) {
    if (name === "live") this.lostAt = 0;
    else this.lostAt ||= Date.now();
    const isStale = this.lostAt && Date.now() - this.lostAt > STALE_MS;
    const clock = new Date(this.lostAt).toTimeString().slice(0, 5);
    this.follow.setConnection(isStale ? "stale" : name, `Stale since ${clock}`);
  }
}
