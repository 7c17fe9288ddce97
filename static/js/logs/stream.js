// The live end of the log: one stream a page, resumed where it broke off, closed after a minute out of sight.
import { formatCursor, parseCursor } from "./store.js";

const HIDDEN_MS = 60_000;
const AGAIN_MS = 3_000;

export class Stream {
  // `on` has: state(name), lines(rows, cursor), notice(text), ended(text).
  constructor(url, source, on) {
    this.url = url;
    this.source = source;
    this.on = on;
    this.events = null;
    this.cursor = {};
    this.isWanted = false;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.#visibility());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", (event) => { if (event.persisted && this.isWanted) this.#connect(); });
  }

  open(cursor) {
    this.cursor = { ...cursor };
    this.isWanted = true;
    if (!document.hidden) this.#connect();
  }

  close() {
    this.isWanted = false;
    this.#close();
  }

  #close() {
    clearTimeout(this.timer);
    this.events?.close();
    this.events = null;
  }

  #connect() {
    this.#close();
    const query = new URLSearchParams(this.source);
    query.set("cursor", formatCursor(this.cursor));
    const events = new EventSource(`${this.url}?${query}`);
    this.events = events;
    events.addEventListener("open", () => this.on.state("live"));
    events.addEventListener("lines", (event) => {
      this.cursor = parseCursor(event.lastEventId);
      this.on.lines(JSON.parse(event.data), this.cursor);
    });
    events.addEventListener("notice", (event) => this.on.notice(JSON.parse(event.data).message));
    events.addEventListener("end", (event) => {
      this.close();
      this.on.ended(JSON.parse(event.data).message);
    });
    events.addEventListener("error", () => {
      this.on.state("reconnecting");
      if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      this.#close();
      this.timer = setTimeout(() => { if (this.isWanted) this.#connect(); }, AGAIN_MS);
    });
  }

  #visibility() {
    if (!this.isWanted) return;
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.#close(), HIDDEN_MS);
    else if (!this.events) this.#connect();
  }
}
