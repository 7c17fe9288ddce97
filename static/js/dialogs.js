// [data-open-dialog="id"] opens a <dialog>; a click beside it closes it. Menus close by Escape and outside clicks.

for (const opener of document.querySelectorAll("[data-open-dialog]")) opener.hidden = false;

document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-open-dialog]");
  if (opener) document.getElementById(opener.dataset.openDialog)?.showModal();
  if (event.target instanceof HTMLDialogElement) event.target.close();
  for (const menu of document.querySelectorAll("details[data-menu][open]")) {
    if (!menu.contains(event.target) || opener) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = document.querySelector("details[data-menu][open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary")?.focus();
});
