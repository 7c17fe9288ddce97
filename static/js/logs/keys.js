// Single keys of the log viewer. They act outside fields only, and not where the reader turned single keys off.

export function bindKeys(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (localStorage.getItem("shoal-shortcuts") === "off") return;
    const { target } = event;
    if (target.isContentEditable) return;
    if (target.closest("textarea, select, [role=textbox], dialog[open], input:not([type=checkbox], [type=radio])")) return;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
