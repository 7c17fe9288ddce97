// The lines in memory: one stretch of the log without holes, at most CAP of them.
// A cursor is an object of line numbers by feed; on the wire it is "g7zw9:120,x0k2p:34".

export const CAP = 20_000;
const EVICT = 2_000; // taken out at once, so that it is rare

export function parseCursor(text) {
  const numbers = {};
  for (const entry of (text || "").split(",")) {
    const [key, number] = entry.split(":");
    if (number) numbers[key] = Number(number);
  }
  return numbers;
}

export function formatCursor(numbers) {
  return Object.entries(numbers).map(([key, number]) => `${key}:${number}`).join(",");
}

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.lines = [];
    this.first = {}; // older lines are before this
    this.last = {}; // newer ones after this
    this.hasOlder = false;
    this.hasNewer = false;
    this.unread = 0; // newer lines that are known of and not here
    this.isSparse = false; // older matches from the server without the lines between them
    this.lookedTo = null;
  }

  fill(page) {
    this.clear();
    this.lines = page.lines;
    this.first = parseCursor(page.first);
    this.last = parseCursor(page.last);
    this.hasOlder = page.has_older;
    this.hasNewer = page.has_newer;
    this.unread = page.behind;
    this.lookedTo = page.looked_to;
  }

  // Lines at the end, each once; gives those that are new, and the older ones that had to go.
  append(lines) {
    const fresh = lines.filter((line) => line.n > (this.last[line.k] ?? 0));
    for (const line of fresh) this.last[line.k] = line.n;
    this.lines.push(...fresh);
    let gone = [];
    if (this.lines.length > CAP) {
      gone = this.lines.splice(0, this.lines.length - CAP + EVICT);
      for (const line of gone) this.first[line.k] = line.n + 1;
      this.hasOlder = true;
    }
    return { fresh, gone };
  }

  // Older lines at the start; gives the newer ones that had to go.
  prepend(page) {
    this.lines.unshift(...page.lines);
    this.first = parseCursor(page.first);
    this.hasOlder = page.has_older;
    this.lookedTo = page.looked_to;
    if (this.lines.length <= CAP) return [];
    const gone = this.lines.splice(CAP - EVICT);
    for (const line of gone.toReversed()) this.last[line.k] = line.n - 1;
    this.unread += gone.length;
    this.hasNewer = true;
    return gone;
  }

  // The newest lines cannot be taken in: only counted.
  skip(lines) {
    this.unread += lines.length;
    this.hasNewer = true;
  }
}
