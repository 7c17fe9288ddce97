// What the form asks for, as functions over lines.

function pattern({ text, isRegex, matchCase }) {
  const source = isRegex ? text : text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(source, matchCase ? "g" : "gi");
}

export function makeFilter(wanted) {
  let finder = null;
  let problem = "";
  try {
    if (wanted.text) finder = pattern(wanted);
  } catch (error) {
    problem = `Not a regular expression: ${error.message.split(": ").at(-1)}.`;
  }
  const levels = new Set(wanted.levels);
  const hits = (line) => {
    if (!finder) return false;
    finder.lastIndex = 0;
    return finder.test(line.t);
  };
  return {
    problem,
    isOn: Boolean(finder) || levels.size > 0,
    hasText: Boolean(finder),
    hits,
    keeps: (line) =>
      (levels.size === 0 || levels.has(line.l)) && (!finder || wanted.mode === "highlight" || hits(line)),
    matches: (line) => {
      if (!finder) return [];
      finder.lastIndex = 0;
      const found = [...line.t.matchAll(finder)].filter((match) => match[0]);
      return found.map((match) => [match.index, match.index + match[0].length]);
    },
  };
}

export class FilterForm {
  constructor(form, onChange) {
    this.form = form;
    this.field = form.elements.q;
    this.counts = form.querySelectorAll("[data-level]");
    let timer = 0;
    let seen = this.parameters().toString();
    const change = () => {
      const now = `${this.parameters()}`;
      if (now !== seen) onChange();
      seen = now;
    };
    this.field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(change, 150);
    });
    form.addEventListener("change", (event) => { if (event.target !== this.field) change(); });
    form.addEventListener("submit", (event) => { event.preventDefault(); change(); });
  }

  read() {
    const data = new FormData(this.form);
    return {
      text: data.get("q") ?? "",
      isRegex: data.has("regex"),
      matchCase: data.has("case"),
      mode: data.get("mode") ?? "only",
      levels: data.getAll("level"),
    };
  }

  clearLevels() {
    for (const box of this.form.querySelectorAll("input[name=level]")) box.checked = false;
  }

  setMode(mode) {
    for (const box of this.form.querySelectorAll("input[name=mode]")) box.checked = box.value === mode;
  }

  // For the address and for the server.
  parameters() {
    const wanted = this.read();
    const found = new URLSearchParams();
    if (wanted.text) {
      found.set("q", wanted.text);
      if (wanted.isRegex) found.set("regex", "1");
      if (wanted.matchCase) found.set("case", "1");
      if (wanted.mode !== "only") found.set("mode", wanted.mode);
    }
    for (const level of wanted.levels) found.append("level", level);
    return found;
  }

  tellProblem(problem) {
    if (problem) this.field.setAttribute("aria-invalid", "true");
    else this.field.removeAttribute("aria-invalid");
  }

  // An entry counts once, by its first line.
  showCounts(lines) {
    const counts = {};
    for (const line of lines) if (line.h) counts[line.l] = (counts[line.l] ?? 0) + 1;
    for (const label of this.counts) {
      const count = counts[label.dataset.level] ?? 0;
      label.querySelector("[data-count]").textContent = count.toLocaleString("en");
      label.toggleAttribute("data-none", count === 0);
    }
  }
}
