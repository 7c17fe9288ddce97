// Jump to a time: a field in a menu, read in the times that the lines show. The address keeps the place, in UTC.

const pad = (number) => String(number).padStart(2, "0");

// As a datetime-local field wants it.
function asField(ms, isLocal) {
  const date = new Date(ms);
  if (!isLocal) return date.toISOString().slice(0, 19);
  const day = [date.getFullYear(), pad(date.getMonth() + 1), pad(date.getDate())].join("-");
  return `${day}T${[date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":")}`;
}

export class Jump {
  constructor(root, { isLocal, here, go }) {
    this.at = root.dataset.at ? Date.parse(`${root.dataset.at}Z`) : null;
    this.menu = root.querySelector("[data-jump]");
    if (!this.menu) return; // a build log has no times
    this.isLocal = isLocal;
    this.here = here;
    const form = this.menu.querySelector("form");
    this.field = form.elements.at;
    this.zone = form.querySelector("[data-zone]");
    this.menu.addEventListener("toggle", () => { if (this.menu.open) this.#fill(); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const at = Date.parse(this.isLocal() ? this.field.value : `${this.field.value}Z`);
      if (!Number.isFinite(at)) {
        this.field.focus();
        return;
      }
      this.menu.open = false;
      this.at = at;
      go(at);
    });
  }

  open() {
    if (!this.menu) return;
    this.menu.open = true;
    this.#fill();
    this.field.focus();
  }

  clear() {
    this.at = null;
  }

  get parameters() {
    return this.at === null ? {} : { at: asField(this.at, false) };
  }

  #fill() {
    const isLocal = this.isLocal();
    this.zone.textContent = isLocal ? "local time" : "UTC";
    const at = this.at ?? this.here();
    if (at) this.field.value = asField(at, isLocal);
  }
}
