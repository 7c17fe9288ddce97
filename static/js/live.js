// Polled regions (hx-trigger="every ...") rest while nobody looks; [data-live-state] says how fresh they are.

let failedAt = null;

function tell(state, text) {
  for (const place of document.querySelectorAll("[data-live-state]")) {
    if (place.dataset.state === state && place.textContent === text) continue;
    place.dataset.state = state;
    place.textContent = text;
  }
}

const isPoll = (element) => element?.getAttribute?.("hx-trigger")?.includes("every");
const hasPolls = () => document.querySelector('[hx-trigger*="every"]') !== null;

function tellSettled() {
  if (hasPolls()) tell("live", "Live");
  else tell("settled", "");
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && isPoll(event.detail.elt)) event.preventDefault();
});

document.addEventListener("htmx:afterRequest", (event) => {
  if (!isPoll(event.detail.elt)) return;
  if (event.detail.successful) {
    failedAt = null;
    setTimeout(tellSettled, 0);
    return;
  }
  failedAt ??= new Date();
  const waited_s = (Date.now() - failedAt) / 1000;
  const clock = failedAt.toTimeString().slice(0, 5);
  tell("stale", waited_s < 10 ? "Reconnecting" : `Stale since ${clock}`);
});

document.addEventListener("visibilitychange", () => {
  if (!failedAt && hasPolls()) tell(document.hidden ? "paused" : "live", document.hidden ? "Paused" : "Live");
});

tellSettled();

// What the reader folded or unfolded stays so when the region comes anew; the rest is as the server sends it.
const asServed = new Map();
const details = (root) => [...(root.querySelectorAll?.("details[id]") ?? [])];
let before = [];
for (const part of details(document)) asServed.set(part.id, part.open);

document.addEventListener("htmx:beforeSwap", (event) => {
  before = details(event.detail.target).map(({ id, open }) => [id, open, open !== (asServed.get(id) ?? open)]);
});
document.addEventListener("htmx:afterSwap", () => {
  const touched = new Map(before.filter(([, , isTouched]) => isTouched));
  for (const [id] of before) asServed.delete(id);
  before = [];
  for (const part of details(document)) {
    if (asServed.has(part.id)) continue;
    asServed.set(part.id, part.open);
    if (touched.has(part.id)) part.open = touched.get(part.id);
  }
});
