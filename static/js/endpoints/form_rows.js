// What comes anew from the server keeps what the reader did to the page: folded parts stay as they are, the focus
// goes into a row that was added, and to the button that adds rows when one was removed.

const form = document.querySelector("[data-endpoint-form]");
let opened = new Map();
let action = "";

form?.addEventListener("htmx:beforeRequest", (event) => {
  const button = event.target.closest?.("button[name=action]");
  if (button) action = button.value;
});

form?.addEventListener("htmx:beforeSwap", () => {
  opened = new Map([...form.querySelectorAll("details[id]")].map((part) => [part.id, part.open]));
});

form?.addEventListener("htmx:afterSwap", () => {
  for (const [id, isOpen] of opened) {
    const part = document.getElementById(id);
    if (part) part.open = part.open || isOpen;
  }
});

form?.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target.id !== "fields" || !action) return;
  wanted(...action.split(":"))?.focus();
  action = "";
});

const last = (selector) => [...form.querySelectorAll(selector)].at(-1);

function wanted(verb, index) {
  if (verb === "add-entity") return last("select[id$=-model]");
  if (verb === "add-env") return last(`input[id^=entity-${index}-env-][id$=-name]`);
  if (verb === "add-tag") return last("input[id^=tag-][id$=-name]");
  if (verb === "remove-env") return document.getElementById(`entity-${index}-add-env`);
  if (verb === "remove-tag") return document.getElementById("add-tag");
  return document.getElementById("add-entity");
}
