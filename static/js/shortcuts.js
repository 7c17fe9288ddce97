// Keys: ? help, / search, c create, and g then a letter for a page of the rail. They act outside fields only, and
// can be turned off in the help dialog (kept in this browser).

const KEY = "shoal-shortcuts";
const isOn = () => localStorage.getItem(KEY) !== "off";
let prefix = "";
let timer = 0;

function isTyping(target) {
  return target.isContentEditable || target.closest("input, textarea, select, [role=textbox], dialog[open]");
}

function act(key) {
  if (key === "?") return document.getElementById("shortcuts")?.showModal();
  if (key === "/") return document.querySelector("[data-search], input[type=search]")?.focus();
  if (key === "c" && document.body.dataset.createUrl) return location.assign(document.body.dataset.createUrl);
  return document.querySelector(`[data-shortcut="${CSS.escape(key)}"]`)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
  if (!isOn() || isTyping(event.target)) return;
  clearTimeout(timer);
  if (event.key === "g" && !prefix) {
    prefix = "g ";
    timer = setTimeout(() => { prefix = ""; }, 1200);
    return;
  }
  const key = prefix + event.key;
  prefix = "";
  if (key === "/" || key === "?") event.preventDefault();
  act(key);
});

const control = document.querySelector("[data-shortcuts-switch]");
if (control) {
  control.checked = isOn();
  control.addEventListener("change", () => localStorage.setItem(KEY, control.checked ? "on" : "off"));
}
