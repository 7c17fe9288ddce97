// Following the end: on at first, scrolling up pauses, the end resumes; a pill tells what came meanwhile.

export class Follow {
  constructor(root, view, store, { toLatest, onResume }) {
    this.view = view;
    this.store = store;
    this.toLatest = toLatest;
    this.onResume = onResume;
    this.isOn = true;
    this.arrived = 0;
    this.scroller = root.querySelector("[data-scroller]");
    this.button = root.querySelector("[data-follow]");
    this.pill = root.querySelector("[data-pill]");
    this.state = root.querySelector("[data-log-state]");
    this.connection = "live";
    this.lastTop = 0;
    this.onScroll = () => {};
    this.button.addEventListener("click", () => this.toggle());
    this.pill.addEventListener("click", () => this.resume());
    this.scroller.addEventListener("scroll", () => this.#scrolled());
    this.scroller.addEventListener("wheel", (event) => { if (event.deltaY < 0) this.#up(); }, { passive: true });
    this.scroller.addEventListener("keydown", (event) => {
      if (["ArrowUp", "PageUp", "Home"].includes(event.key)) this.#up();
      if (event.key === "End") this.resume();
    });
    new ResizeObserver(() => this.stick()).observe(this.scroller);
  }

  pause() {
    if (!this.isOn) return;
    this.isOn = false;
    this.tell();
  }

  async resume() {
    this.isOn = true;
    this.arrived = 0;
    this.onResume();
    if (this.store.hasNewer) await this.toLatest();
    this.stick();
    this.tell();
  }

  toggle() {
    if (this.isOn) this.pause();
    else this.resume();
  }

  // Keeps the end in sight while following.
  stick() {
    if (!this.isOn) return;
    this.view.window.toEnd();
    this.lastTop = this.scroller.scrollTop;
  }

  came(count) {
    if (!this.isOn) this.arrived += count;
    this.tell();
  }

  setConnection(name, text = "") {
    this.connection = name;
    this.since = text;
    this.tell();
  }

  tell() {
    const waiting = this.arrived + this.store.unread;
    this.button.setAttribute("aria-pressed", String(this.isOn));
    this.pill.hidden = this.isOn || (waiting === 0 && !this.store.hasNewer);
    const count = waiting.toLocaleString("en");
    const text = waiting ? `${count} new, jump to latest` : "Jump to latest";
    if (this.pill.textContent !== text) this.pill.textContent = text;
    const names = { reconnecting: "Reconnecting", ended: "Ended", stale: this.since, loading: "Loading" };
    const isLive = this.connection === "live";
    this.state.dataset.state = isLive && !this.isOn ? "paused" : this.connection;
    this.state.textContent = isLive ? (this.isOn ? "Live" : "Paused") : names[this.connection];
  }

  #up() {
    if (this.scroller.scrollHeight > this.scroller.clientHeight + 6) this.pause();
  }

  #scrolled() {
    const { scrollTop } = this.scroller;
    const isOwn = Math.abs(scrollTop - this.view.window.placed) <= 1;
    const isUp = scrollTop < this.lastTop - 2;
    this.lastTop = scrollTop;
    if (!isOwn) this.view.window.placed = NaN;
    this.view.window.follow();
    if (this.isOn && !isOwn && isUp && !this.view.window.isAtEnd) this.pause();
    else if (!this.isOn && !isOwn && !isUp && this.view.window.isAtEnd && !this.store.hasNewer) this.resume();
    this.onScroll();
  }
}
