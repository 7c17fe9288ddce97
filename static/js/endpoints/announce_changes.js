// [data-announce] tells in words what a live region says; when the words change they are spoken, once.
import { announce } from "../announce.js";

const words = () => document.querySelector("[data-announce]")?.dataset.announce;
let said = words();

document.addEventListener("htmx:afterSettle", () => {
  const now = words();
  if (!now || now === said) return;
  said = now;
  announce(now);
});
