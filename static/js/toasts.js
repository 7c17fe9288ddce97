// The page's messages as toasts: good news goes after 6 s unless looked at, errors stay until closed. A failed
// htmx request becomes one too, with its request id.
import { announce } from "./announce.js";

const stack = document.querySelector("[data-toasts]");
const STAY_MS = 6000;

function arm(toast) {
  const close = document.createElement("button");
  close.type = "button";
  close.className = "toast-close";
  close.setAttribute("aria-label", "Close");
  close.textContent = "×";
  close.addEventListener("click", () => toast.remove());
  toast.append(close);
  announce(toast.querySelector(":scope > span")?.textContent ?? "");
  if (toast.dataset.toast === "error" || toast.dataset.toast === "warning") return;
  let timer = setTimeout(() => toast.remove(), STAY_MS);
  for (const pause of ["pointerenter", "focusin"]) toast.addEventListener(pause, () => clearTimeout(timer));
  for (const resume of ["pointerleave", "focusout"]) {
    toast.addEventListener(resume, () => { timer = setTimeout(() => toast.remove(), STAY_MS); });
  }
}

export function toast(text, tone = "bad") {
  if (!stack) return;
  const element = document.createElement("div");
  element.className = `notice notice-${tone}`;
  element.dataset.toast = tone === "bad" ? "error" : "success";
  const words = document.createElement("span");
  words.textContent = text;
  element.append(words);
  stack.append(element);
  arm(element);
}

for (const element of stack?.querySelectorAll("[data-toast]") ?? []) arm(element);

document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.elt.getAttribute("hx-trigger")?.includes("every")) return; // live.js tells
  const request = event.detail.xhr.getResponseHeader("X-Request-Id");
  toast(`That did not work (${event.detail.xhr.status}).${request ? ` Request id ${request}` : ""}`);
});
