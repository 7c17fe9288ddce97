// The Query tab: Ctrl+Enter sends, the chosen snippet is remembered, the picked entity brings its example.

const KEY = "shoal-snippet";
const body = document.querySelector("[data-query-body]");

body?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  body.form.requestSubmit(body.form.querySelector("[data-send]"));
});

const choices = [...document.querySelectorAll("[data-snippet]")];
const remembered = choices.find((choice) => choice.value === localStorage.getItem(KEY));
if (remembered) remembered.checked = true;
for (const choice of choices) choice.addEventListener("change", () => localStorage.setItem(KEY, choice.value));
