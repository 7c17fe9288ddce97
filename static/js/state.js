// [data-page-state="bad"] anywhere in the page, also after a live update, shows in the tab: icon and title.

const link = document.querySelector("[data-favicon]");
const goodIcon = link?.getAttribute("href");
const title = document.title;

function show() {
  const bad = document.querySelector('[data-page-state="bad"]');
  if (link) link.setAttribute("href", bad ? link.dataset.bad : goodIcon);
  document.title = bad ? `! ${bad.dataset.pageStateText ?? "Failed"} · ${title}` : title;
}

show();
document.addEventListener("htmx:afterSettle", show);
