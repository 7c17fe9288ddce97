// A line as elements. Text only ever enters as textContent.

const LEVELS = { F: "Fatal", E: "Error", W: "Warning", I: "Info", D: "Debug", P: "No level" };
const pad = (number, width = 2) => String(number).padStart(width, "0");

export function timeParts(ms, isLocal) {
  const date = new Date(ms);
  if (!isLocal) return { day: date.toISOString().slice(5, 10), clock: date.toISOString().slice(11, 23) };
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return {
    day: `${pad(date.getMonth() + 1)}-${pad(date.getDate())}`,
    clock: `${clock}.${pad(date.getMilliseconds(), 3)}`,
  };
}

export function asText(line) {
  return [line.p, line.s ? "[shoal]" : "", line.t].filter(Boolean).join(" ");
}

function element(name, className, text = "") {
  const found = document.createElement(name);
  found.className = className;
  found.textContent = text;
  return found;
}

// The text cut where a colour or a match begins or ends.
function pieces(text, looks, matches) {
  const edges = new Set([0, text.length]);
  for (const [start, end] of [...looks, ...matches]) edges.add(start).add(end);
  const cuts = [...edges].sort((a, b) => a - b);
  return cuts.slice(0, -1).map((start, index) => {
    const classes = looks.filter((look) => look[0] <= start && start < look[1]).map((look) => look[2]);
    if (matches.some((match) => match[0] <= start && start < match[1])) classes.push("log-match");
    return [classes.join(" "), text.slice(start, cuts[index + 1])];
  });
}

export function makeRow(line, { matches, times, isMarked, isCurrent }) {
  const row = element("div", "log-row");
  row.line = line;
  row.dataset.level = line.l;
  if (line.s) row.dataset.own = "";
  if (!line.h) row.dataset.rest = "";
  if (isMarked) row.dataset.marked = "";
  if (isCurrent) row.dataset.current = "";

  const number = element("a", "log-number", line.n);
  number.tabIndex = -1; // hundreds of stops would be in the way; the key l does the same
  if (line.k !== "build") number.href = `?replica=${line.k}&line=${line.n}`;
  const time = element("span", "log-time");
  if (line.at !== null) {
    const { day, clock } = timeParts(line.at, times === "local");
    time.append(element("span", "log-day", `${day} `), clock);
    time.title = new Date(line.at).toISOString();
  }
  const level = element("span", "log-level", line.h && line.l !== "P" ? line.l : "");
  level.title = LEVELS[line.l];
  const text = element("span", "log-text");
  if (line.s) text.append(element("span", "log-own", "Shoal"));
  for (const [classes, part] of pieces(line.t, line.a ?? [], matches)) {
    text.append(classes ? element("span", classes, part) : part);
  }
  row.append(number, time, element("span", "log-tag", line.p), level, text);
  return row;
}
