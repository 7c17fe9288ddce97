// Says what is wrong with a field when it is left, and again on each key once it is wrong. The words stand in the
// page: data-missing, data-mismatch. The server checks all of it once more.

const form = document.querySelector("[data-endpoint-form]");

// A message that appears between press and release would move the pressed button from under the pointer.
let released = Promise.resolve();
document.addEventListener("pointerdown", () => {
  released = new Promise((resolve) => {
    for (const end of ["pointerup", "pointercancel"]) {
      document.addEventListener(end, () => setTimeout(resolve, 0), { once: true });
    }
  });
});

function problem(field) {
  if (field.validity.valueMissing) return field.dataset.missing ?? "";
  if (field.validity.patternMismatch || isOutOfBounds(field)) return field.dataset.mismatch ?? "";
  return "";
}

// data-least and data-most bound every number in the field.
function isOutOfBounds({ value, dataset }) {
  if (dataset.most === undefined) return false;
  return (value.match(/\d+/g) ?? []).some((each) => each < Number(dataset.least) || each > Number(dataset.most));
}

function show(field, message) {
  const place = document.getElementById(`${field.id}-error`);
  if (!place) return;
  place.querySelector("span").textContent = message;
  place.hidden = !message;
  if (message) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

const isChecked = (field) => Boolean(field.dataset?.missing || field.dataset?.mismatch);

form?.addEventListener("focusout", (event) => {
  const field = event.target;
  if (!isChecked(field)) return;
  if (field.validity.valueMissing && field.dataset.touched === undefined) return; // only passed by
  const message = problem(field);
  // The server knows more about the name.
  if (message || field.id !== "name") released.then(() => show(field, message));
});

form?.addEventListener("input", (event) => {
  const field = event.target;
  if (!isChecked(field)) return;
  field.dataset.touched = "";
  const message = problem(field);
  if (field.getAttribute("aria-invalid") === "true") show(field, message);
  if (field.id === "name") echo(field.value.trim());
});

function echo(name) {
  const place = document.querySelector("[data-name-echo]");
  if (place) place.textContent = name || "…";
}

// The server's word on the name.
document.addEventListener("htmx:afterSwap", () => {
  const field = document.getElementById("name");
  const place = document.getElementById("name-error");
  if (!form || !field || !place || field.readOnly) return;
  if (place.hidden) field.removeAttribute("aria-invalid");
  else field.setAttribute("aria-invalid", "true");
});
