// What lies beyond the lines in the page, in words: how far back it goes, what was skipped, how it ended, how quiet it is.
import { timeParts } from "./rows.js";
import { CAP } from "./store.js";

const QUIET_MS = 30_000;
const number = (count) => count.toLocaleString("en");

export class Edges {
  constructor(root, store, view) {
    this.store = store;
    this.view = view;
    this.older = root.querySelector('[data-edge="older"]');
    this.newer = root.querySelector('[data-edge="newer"]');
    this.counts = root.querySelector("[data-log-counts]");
    this.quiet = root.querySelector("[data-log-quiet]");
    this.noted = root.querySelector("[data-log-note]");
    this.scroller = root.querySelector("[data-scroller]");
    this.ended = "";
    this.seenAt = Date.now();
    this.onAct = () => {};
    this.onMove = () => {};
    for (const [name, edge] of [["older", this.older], ["newer", this.newer]]) {
      edge.addEventListener("click", (event) => { if (event.target.closest("button")) this.onAct(name); });
    }
    setInterval(() => this.#tellQuiet(), 5_000);
  }

  tell({ isLoading = false } = {}) {
    const { store, view } = this;
    const isFull = view.filter.isOn && store.lines.length >= CAP;
    if (isLoading) this.#set(this.older, view.filter.isOn ? `Looking further back${this.#back(", at ")} ...` : "Loading earlier lines ...");
    else if (store.hasOlder && isFull) {
      this.#set(this.older, `Looked at ${number(store.lines.length)} lines${this.#back(", back to ")}.`, "Search further back");
    } else if (store.hasOlder && !view.filter.isOn) this.#set(this.older, "", "Load earlier lines");
    else if (!store.hasOlder && store.lines.length) this.#set(this.older, this.#start());
    else this.#set(this.older, "");

    if (this.ended && !store.hasNewer) this.#set(this.newer, this.ended);
    else if (store.hasNewer) this.#set(this.newer, store.unread ? `${number(store.unread)} lines skipped.` : "", "Load them");
    else if (!store.lines.length) this.#set(this.newer, "No lines yet. They come here as soon as a server writes any.");
    else if (!view.shown.length) this.#set(this.newer, "No line matches.");
    else this.#set(this.newer, "");

    const shown = view.filter.isOn && view.shown.length !== store.lines.length ? `${number(view.shown.length)} of ` : "";
    this.counts.textContent = `${shown}${number(store.lines.length)} lines in the page${this.#back(", back to ")}`;
    this.#tellQuiet();
  }

  arrived() {
    this.seenAt = Date.now();
  }

  end(text) {
    this.ended = text;
    this.tell();
  }

  note(text, { isBad = false } = {}) {
    this.noted.textContent = text;
    this.noted.toggleAttribute("data-bad", isBad);
    this.noted.hidden = !text;
  }

  #start() {
    const first = this.store.lines[0];
    const keys = Object.keys(this.store.first);
    return keys.length === 1 && first.n > 1 ? `Lines before ${number(first.n)} are no longer kept.` : "Start of the log.";
  }

  #back(before) {
    const at = this.store.isSparse ? this.store.lookedTo * 1000 : this.store.lines[0]?.at;
    if (!at) return "";
    const { day, clock } = timeParts(at, this.scroller.dataset.times === "local");
    return `${before}${day} ${clock.slice(0, 8)}`;
  }

  #tellQuiet() {
    const last = this.store.lines.at(-1);
    const isQuiet = !this.ended && !this.store.hasNewer && last?.at && Date.now() - this.seenAt > QUIET_MS;
    const clock = isQuiet ? timeParts(last.at, this.scroller.dataset.times === "local").clock.slice(0, 8) : "";
    const text = isQuiet ? `No lines since ${clock}` : "";
    if (this.quiet.textContent !== text) this.quiet.textContent = text;
  }

  #set(edge, text, action = "") {
    const key = `${text}|${action}`;
    if (edge.dataset.shown === key) return; // the button keeps its focus
    edge.dataset.shown = key;
    edge.replaceChildren(text);
    if (action) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "link-button";
      button.textContent = action;
      edge.append(" ", button);
    }
    edge.hidden = edge === this.newer && !text && !action; // the upper one keeps its height
    this.onMove();
  }
}
