// Two quick picks: the answer to the first must not undo the second, whose own answer follows.
// The request of the second waits in htmx's queue, so the first one's answer is simply not drawn.
const form = document.getElementById("endpoint-form");
let picks = 0;

function isPick(element) {
  return element instanceof Element && element.matches("[data-latest-wins]");
}

if (form) {
  form.addEventListener("change", (event) => { if (isPick(event.target)) picks += 1; }, true);
  form.addEventListener("htmx:beforeRequest", (event) => {
    if (isPick(event.detail.elt)) event.detail.xhr.picksBefore = picks;
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const before = event.detail.xhr.picksBefore;
    if (before !== undefined && before !== picks) event.detail.shouldSwap = false;
  });
}
