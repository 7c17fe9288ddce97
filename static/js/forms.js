// form[data-once] is sent once: its button says so (data-busy="Creating...") until the answer is there.

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-once]");
  if (!form || event.defaultPrevented) return;
  if (form.dataset.sent !== undefined) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "";
  const button = event.submitter ?? form.querySelector("button:not([type=button])");
  if (!button) return;
  form.dataset.label = button.textContent;
  button.setAttribute("aria-disabled", "true");
  if (button.dataset.busy) button.textContent = button.dataset.busy;
});

// Going back shows the page as it was sent; let it be sent again.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of document.querySelectorAll("form[data-sent]")) {
    const button = form.querySelector("button[aria-disabled=true]");
    delete form.dataset.sent;
    button?.removeAttribute("aria-disabled");
    if (button) button.textContent = form.dataset.label;
  }
});
