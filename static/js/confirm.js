// a[data-confirm] leads to a page that asks before it hurts. With script its [data-confirm-body] opens as a dialog,
// the focus on [data-cancel]; whatever goes wrong, the link is followed instead.

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-confirm]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  try {
    const answer = await fetch(link.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error("not the page");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const body = page.querySelector("[data-confirm-body]");
    if (!body) throw new Error("nothing to confirm");
    open(document.importNode(body, true), link);
  } catch {
    location.assign(link.href);
  }
});

function open(body, link) {
  const dialog = document.createElement("dialog");
  dialog.className = "dialog";
  dialog.setAttribute("aria-label", body.dataset.confirmBody || link.textContent.trim());
  dialog.append(body);
  document.body.append(dialog);
  dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
  dialog.addEventListener("click", (event) => {
    if (!event.target.closest("[data-cancel]")) return;
    event.preventDefault();
    dialog.close();
  });
  dialog.showModal();
  dialog.querySelector("[data-cancel]")?.focus();
}
