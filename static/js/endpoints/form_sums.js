// Two sums: the traffic that the served entities share, and concurrency = requests per second x seconds per request.

const form = document.querySelector("[data-endpoint-form]");
const number = (text) => Number.parseFloat(text.replace(",", "."));

function total() {
  const place = form.querySelector("[data-traffic-total]");
  if (!place) return;
  const shares = [...form.querySelectorAll("[data-traffic]")].map((field) => Number.parseInt(field.value, 10) || 0);
  place.textContent = shares.reduce((sum, share) => sum + share, 0);
}

function calculate(part) {
  const product = number(part.querySelector("[data-rate]").value) * number(part.querySelector("[data-time]").value);
  const result = part.querySelector("[data-result]");
  if (!Number.isFinite(product) || product < 0) {
    result.textContent = "–";
    return;
  }
  const units = Math.max(4, Math.ceil(product / 4) * 4);
  result.textContent = `${Number(product.toFixed(1))}, so ${units}`;
}

function showCalculators() {
  for (const part of form?.querySelectorAll("[data-calculator]") ?? []) part.hidden = false;
}

form?.addEventListener("input", (event) => {
  if (event.target.matches("[data-traffic]")) total();
  const part = event.target.closest("[data-calculator]");
  if (part) calculate(part);
});
form?.addEventListener("htmx:afterSwap", showCalculators);
showCalculators();
