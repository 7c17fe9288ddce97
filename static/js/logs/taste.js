// How this reader likes logs: wrapped or not, which times, how large. Kept in cookies, so that the first byte is right.

const YEAR_S = 365 * 24 * 3600;

function keep(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=${YEAR_S}; samesite=lax`;
}

export class Taste {
  constructor(panel, scroller, onChange) {
    this.scroller = scroller;
    this.onChange = onChange;
    this.wrap = panel.querySelector("[name=wrap]");
    this.times = panel.querySelectorAll("[name=times]");
    this.errors = panel.querySelector("[name=announce]");
    this.wrap.checked = scroller.classList.contains("log-wraps");
    for (const box of this.times) box.checked = box.value === this.timeStyle;
    this.wrap.addEventListener("change", () => this.#setWrap());
    this.sizes = [...panel.querySelectorAll("[name=size]")];
    for (const box of this.sizes) box.checked = box.value === scroller.dataset.size;
    this.#bind(this.times, "times", "log_times");
    this.#bind(this.sizes, "size", "log_size");
  }

  // One step larger or smaller.
  resize(step) {
    const at = this.sizes.findIndex((box) => box.checked);
    this.sizes[at + step]?.click();
  }

  #bind(boxes, name, cookie) {
    for (const box of boxes) {
      box.addEventListener("change", () => {
        this.scroller.dataset[name] = box.value;
        keep(cookie, box.value);
        this.onChange();
      });
    }
  }

  get timeStyle() {
    return this.scroller.dataset.times || "utc";
  }

  get announcesErrors() {
    return this.errors.checked;
  }

  toggleWrap() {
    this.wrap.checked = !this.wrap.checked;
    this.#setWrap();
  }

  #setWrap() {
    this.scroller.classList.toggle("log-wraps", this.wrap.checked);
    keep("log_wrap", this.wrap.checked ? "1" : "0");
    this.onChange();
  }
}
