// Asks for this page again every three seconds, and puts in what has changed. Without this script the page reloads.
"use strict";
const news = document.getElementById("news");
let last = document.getElementById("main").innerHTML, typed;
document.documentElement.className = "live";
const narrow = matchMedia("(max-width: 48rem)").matches;
if (narrow) document.querySelectorAll(".when").forEach((d) => { d.open = false; });

function focusable(main) { return [...main.querySelectorAll("a, button, input, summary")]; }

async function follow() {
  const at = location.href;
  const response = await fetch(at);
  if (response.status === 403) throw new Error("refused");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (at !== location.href) return; // more was typed meanwhile
  const main = document.getElementById("main"), fresh = page.getElementById("main");
  document.getElementById("at").replaceWith(page.getElementById("at"));
  if (fresh.innerHTML === last) {
    if (news.dataset.stopped) news.textContent = news.dataset.stopped = "";
    return;
  }
  last = fresh.innerHTML;
  const active = document.activeElement, focus = focusable(main).indexOf(active);
  const text = active.id === "q" && [active.value, active.selectionStart, active.selectionEnd];
  const open = [...main.querySelectorAll("details")].map((d) => d.open);
  news.textContent = fresh.dataset.news === main.dataset.news ? "" : fresh.dataset.news;
  main.dataset.news = fresh.dataset.news;
  main.replaceChildren(...fresh.childNodes);
  main.querySelectorAll("details").forEach((d, i) => { d.open = i in open ? open[i] : d.open && !narrow; });
  if (text) {
    const q = document.getElementById("q");
    q.value = text[0];
    q.focus({ preventScroll: true });
    q.setSelectionRange(text[1], text[2]);
  } else if (focus >= 0 && focusable(main)[focus]) {
    focusable(main)[focus].focus({ preventScroll: true });
  }
}

async function look() {
  try {
    await follow();
  } catch {
    news.textContent = "The dashboard has stopped: start the command again, and open the address that it prints.";
    news.dataset.stopped = "yes";
  }
}

async function forever() {
  if (!document.hidden) await look();
  setTimeout(forever, 3000);
}
setTimeout(forever, 3000);

// What is typed is searched for at once, and is in the address.
document.addEventListener("input", (e) => {
  if (e.target.id !== "q") return;
  clearTimeout(typed);
  typed = setTimeout(() => {
    history.replaceState(null, "", e.target.value ? "/?" + new URLSearchParams({ q: e.target.value }) : "/");
    look();
  }, 200);
});

document.addEventListener("click", async (e) => {
  if (!e.target.matches(".copy")) return;
  await navigator.clipboard.writeText(e.target.previousElementSibling.textContent);
  e.target.textContent = "Copied";
});
