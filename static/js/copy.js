// Buttons that copy: [data-copy="text"], or [data-copy-from="id of an element"].
// They are hidden in the page and shown here, so that none is there where copying cannot work.
import { announce } from "./announce.js";

const canCopy = Boolean(navigator.clipboard) || document.queryCommandSupported?.("copy");

function show(root) {
  if (!canCopy) return;
  for (const button of root.querySelectorAll("[data-copy], [data-copy-from]")) button.hidden = false;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea"); // plain http on another host has no clipboard
  field.value = text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-from]");
  if (!button) return;
  const source = button.dataset.copyFrom && document.getElementById(button.dataset.copyFrom);
  const text = source ? (source.value ?? source.textContent) : button.dataset.copy;
  const label = button.querySelector("span") ?? button;
  const before = button.dataset.label ?? label.textContent;
  button.dataset.label = before;
  try {
    await copy(text);
    label.textContent = "Copied";
    announce("Copied");
  } catch {
    label.textContent = "Not copied";
    announce("The browser refused to copy");
  }
  setTimeout(() => { label.textContent = before; }, 1600);
});

show(document);
document.addEventListener("htmx:load", (event) => show(event.detail.elt.parentElement ?? document));
