// Follows the appliance. A stream says when there is something new; the main part of the page is fetched again then,
// and the pieces that differ are replaced, so that focus, selection and what is unfolded stay.
"use strict";

const retry = 15000; // ms after a stream was refused or ended
const live = document.getElementById("live");
let stream = null;
let timer = 0;
let isFetching = false;
let wanted = "";

function say(text) {
  if (live.textContent !== text) live.textContent = text;
}

// patch makes one element like another one. What has an id and stays is not moved where that can be: an element that is
// moved loses the focus.
function patch(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }

  const stays = new Set([...to.children].map((e) => e.id));
  for (const gone of [...from.children].filter((e) => e.id && !stays.has(e.id))) gone.remove();
  const byID = new Map([...from.children].filter((e) => e.id).map((e) => [e.id, e]));
  let at = from.firstChild;
  for (const next of [...to.childNodes]) {
    const known = next.id ? byID.get(next.id) : at && !at.id ? at : null;
    if (!known || known.nodeName !== next.nodeName) {
      from.insertBefore(next, at);
      continue;
    }
    while (at && at !== known && !at.id) at = drop(at);
    if (known === at) at = at.nextSibling;
    else from.insertBefore(known, at);
    if (known.isEqualNode(next) || known.dataset && "own" in known.dataset) continue; // a script's own is its alone
    if (known.nodeType === Node.ELEMENT_NODE) patch(known, next);
    else known.data = next.data;
  }
  while (at) at = drop(at);
}

// drop removes a node, and returns the one after it.
function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// patchPage makes the main part like another one. Focus follows what it is in to another place of the page.
function patchPage(main, next) {
  const focused = document.activeElement;
  const within = focused.closest("#main [id]");
  patch(main, next);
  const now = within && document.getElementById(within.id);
  if (!now || document.contains(focused) && document.activeElement === focused) return;
  (now.querySelector("a, summary") || now).focus({ preventScroll: true });
}

// refresh fetches the main part until it is the newest; once in any case if that is forced.
async function refresh(isForced) {
  if (isFetching) return;
  isFetching = true;
  try {
    const main = document.getElementById("main");
    while (isForced || main.dataset.version !== wanted) {
      isForced = false;
      const before = wanted;
      const answer = await fetch(location.pathname + "?part=main", { cache: "no-store" });
      if (answer.status === 401) return location.reload(); // to the log-in
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("main");
      if (!next) break;
      patchPage(main, next);
      if (before === wanted) break; // what is newer comes with the next event
    }
    const head = document.getElementById("headline").textContent;
    const title = document.getElementById("title").textContent;
    const name = document.querySelector(".name").textContent;
    document.title = `${title}: ${head} · ${name}`;
  } catch {
    lost();
  } finally {
    isFetching = false;
  }
}

function lost() {
  if (stream) stream.close();
  stream = null;
  const time = new Date().toLocaleTimeString();
  if (!live.classList.contains("lost")) say(`Not connected since ${time}: this page may be old.`);
  live.classList.add("lost");
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(follow, retry);
}

function follow() {
  clearTimeout(timer);
  if (stream || document.hidden) return;
  stream = new EventSource("/events?page=" + encodeURIComponent(location.pathname));
  stream.addEventListener("version", (event) => {
    live.classList.remove("lost");
    say("This page is live.");
    wanted = event.data;
    refresh(false);
  });
  stream.onerror = () => {
    lost();
    refresh(true); // a session that has ended is noticed by it
  };
}

// A browser opens six connections to one host: a tab that nobody sees needs none.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return follow();
  if (stream) stream.close();
  stream = null;
});
addEventListener("pagehide", () => stream && stream.close());
follow();
