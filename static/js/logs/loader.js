// Brings lines in: the first page, older and newer ones as the reader comes near an edge; live.js adds the end.
import { Live } from "./live.js";
import { CAP, formatCursor } from "./store.js";

const NEAR_PX = 600;

export class Loader {
  constructor(root, parts) {
    Object.assign(this, parts);
    this.scroller = root.querySelector("[data-scroller]");
    this.isLoading = false;
    this.follow.onScroll = () => this.#edge();
    this.edges.onAct = (edge) => this.#act(edge);
    this.live = new Live(root, parts);
  }

  async begin(range, at) {
    if (!range && at !== null) return this.toTime(at);
    this.follow.isOn = range === null;
    await this.#replace(range ? { line: String(range.from) } : {});
    if (!range) return;
    const line = this.store.lines.find((each) => each.n >= range.from) ?? this.store.lines.at(-1);
    if (line && line.n !== range.from) this.edges.note(`Line ${range.from} is no longer kept; this is the nearest.`);
    if (line) this.view.goTo(line);
  }

  // The first line in the page that is not older; gives it.
  async toTime(at) {
    this.follow.pause();
    await this.#replace({ at: new Date(at).toISOString() });
    const lines = this.view.shown;
    const line = lines.find((each) => each.at >= at) ?? lines.at(-1);
    if (!line) return null;
    if (line.at < at) this.edges.note("No line is that new; this is the last one.");
    else this.edges.note(line === lines[0] && !this.store.hasOlder ? "The log does not go back further; this is its first line." : "");
    this.view.goTo(line);
    return line;
  }

  latest() {
    return this.#replace({});
  }

  async #replace(parameters) {
    this.live.close();
    this.follow.setConnection("loading");
    const page = await this.#get(parameters);
    if (!page) return;
    this.store.fill(page);
    this.view.rebuild();
    this.follow.setConnection("live");
    this.follow.stick();
    this.onDraw();
    this.#goLive();
    await this.fillUp();
  }

  // Follows the end once all up to it is here.
  #goLive() {
    if (!this.store.hasNewer) this.live.open(this.store.last);
  }

  async #get(parameters, filter) {
    try {
      return await this.api.page(parameters, filter);
    } catch (error) {
      this.edges.note(error.message, { isBad: true });
      return null;
    }
  }

  // A filter that leaves little makes the search go back by itself, up to the cap.
  async fillUp() {
    while (this.#isNearTop() && this.store.lines.length < CAP && (await this.older())) { /* once more */ }
    this.onDraw();
  }

  #isNearTop() {
    return this.view.window.start === 0 && this.scroller.scrollTop < NEAR_PX;
  }

  async older(filter = null) {
    if (this.isLoading || !this.store.hasOlder) return false;
    this.isLoading = true;
    this.edges.tell({ isLoading: true });
    const limit = this.view.filter.isOn ? 2000 : 500;
    const page = await this.#get({ before: formatCursor(this.store.first), limit }, filter);
    this.isLoading = false;
    if (!page) return false;
    const gone = this.store.prepend(page);
    if (gone.length) this.live.close();
    this.view.prepended(page.lines, gone);
    this.follow.stick();
    this.onDraw();
    this.follow.tell();
    return true;
  }

  async newer() {
    if (this.isLoading || !this.store.hasNewer) return;
    this.isLoading = true;
    const page = await this.#get({ after: formatCursor(this.store.last) });
    this.isLoading = false;
    if (!page) return;
    this.store.hasNewer = page.has_newer;
    this.store.unread = page.behind;
    const { fresh, gone } = this.store.append(page.lines);
    this.view.appended(fresh, gone);
    this.onDraw();
    this.follow.tell();
    this.#goLive();
  }

  async #edge() {
    if (this.view.window.isAtEnd && this.store.hasNewer) await this.newer();
    else if (this.#isNearTop() && !this.view.filter.isOn) await this.older();
    else if (this.#isNearTop() && this.store.lines.length < CAP) await this.fillUp();
  }

  #act(edge) {
    if (edge === "newer") this.newer();
    else if (!this.view.filter.isOn) this.older();
    else this.#searchBack();
  }

  // Beyond the cap the server looks, and only what matches comes into the page.
  async #searchBack() {
    this.store.isSparse = true;
    await this.older(this.form.parameters());
  }
}
