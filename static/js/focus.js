// [data-focus] takes the focus when it appears: the summary of a form's errors, a result to read first.

function focusNew(root) {
  const wanted = root.matches?.("[data-focus]") ? root : root.querySelector("[data-focus]");
  wanted?.focus();
}

focusNew(document);
document.addEventListener("htmx:load", (event) => {
  if (event.detail.elt !== document.body) focusNew(event.detail.elt);
});
