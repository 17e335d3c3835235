// Asks for this page again every three seconds, and puts in what has changed. Without this script the page reloads.
"use strict";
const news = document.getElementById("news");
let last = document.getElementById("main").innerHTML;

function focusable(main) { return [...main.querySelectorAll("a, button, input, select, summary, .scroll")]; }

async function follow() {
  const main = document.getElementById("main");
  if (document.hidden || (document.activeElement && document.activeElement.closest("form"))) return;
  const response = await fetch(location.href);
  if (response.status === 403) throw new Error("refused");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById("main");
  document.getElementById("at").textContent = page.getElementById("at").textContent;
  if (fresh.innerHTML === last) {
    if (news.dataset.stopped) news.textContent = news.dataset.stopped = "";
    return;
  }
  last = fresh.innerHTML;
  const focus = focusable(main).indexOf(document.activeElement);
  const open = [...main.querySelectorAll("details")].map((d) => d.open);
  const scrolled = [...main.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  news.textContent = fresh.dataset.news === main.dataset.news ? "" : fresh.dataset.news;
  main.dataset.news = fresh.dataset.news;
  main.replaceChildren(...fresh.childNodes);
  main.querySelectorAll("details").forEach((d, i) => { d.open = open[i]; });
  main.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = scrolled[i] || 0; });
  if (focus >= 0 && focusable(main)[focus]) focusable(main)[focus].focus({ preventScroll: true });
}

async function forever() {
  try {
    await follow();
  } catch {
    news.textContent = "The dashboard has stopped: start the command again, and open the address that it prints.";
    news.dataset.stopped = "yes";
  }
  setTimeout(forever, 3000);
}
setTimeout(forever, 3000);
