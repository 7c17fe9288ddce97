// Says a sentence to screen readers through the page's one status region.

export function announce(text) {
  const region = document.querySelector("[data-announcer]");
  if (!region) return;
  region.textContent = "";
  setTimeout(() => { region.textContent = text; }, 50);
}
