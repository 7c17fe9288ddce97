// <time data-when>: relative texts stay true while the page is open; full ones follow the UTC / local switch.

const isLocal = document.documentElement.dataset.times === "local";
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const pad = (number) => String(number).padStart(2, "0");

function full(date) {
  if (!isLocal) return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(date);
  const zone = parts.find((part) => part.type === "timeZoneName")?.value ?? "";
  return `${day} ${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())} ${zone}`;
}

export function relative(date, now = new Date()) {
  const seconds = (now - date) / 1000;
  const size = Math.abs(seconds);
  if (size < 5) return "just now";
  if (size >= 30 * 86400) {
    const day = isLocal ? date.getDate() : date.getUTCDate();
    const month = isLocal ? date.getMonth() : date.getUTCMonth();
    return `${day} ${months[month]} ${isLocal ? date.getFullYear() : date.getUTCFullYear()}`;
  }
  const [unit_s, unit] = [[86400, "day"], [3600, "h"], [60, "min"], [1, "s"]].find(([each]) => size >= each);
  const count = Math.floor(size / unit_s);
  const word = unit === "day" && count !== 1 ? "days" : unit;
  return seconds > 0 ? `${count} ${word} ago` : `in ${count} ${word}`;
}

function update(root) {
  for (const element of root.querySelectorAll("time[data-when]")) {
    const date = new Date(element.dateTime);
    const text = element.dataset.when === "full" ? full(date) : relative(date);
    if (element.textContent !== text) element.textContent = text;
    element.title = full(date);
  }
}

update(document);
document.addEventListener("htmx:afterSettle", () => update(document));
setInterval(() => { if (!document.hidden) update(document); }, 10_000);
