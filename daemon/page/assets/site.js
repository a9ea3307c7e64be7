// Helps with a site document: explains the key at the cursor and finds keys, all of which the page has.
"use strict";

const text = document.getElementById("text");
const here = document.getElementById("here");
const find = document.getElementById("find");
const sections = [...document.querySelectorAll("#keys details")];
const unfolded = new Set(sections.filter((s) => s.open));

// keyAt is the path to the key at a place of a document, without numbers of items: ["nodes", "bmc", "address"].
function keyAt(yaml, place) {
  const end = yaml.indexOf("\n", place);
  const lines = yaml.slice(0, end < 0 ? yaml.length : end).split("\n").reverse();
  const column = place - yaml.lastIndexOf("\n", place - 1) - 1;
  const path = [];
  let limit = Infinity; // a key above stands left of it
  for (const line of lines) {
    const [, indent, dashes, key, value] = /^( *)((?:- +)*)(?:([\w-]+):(?=\s|$))?(.*)$/.exec(line);
    if (limit === Infinity) {
      path.push(...flowKeys(value, column - (line.length - value.length)));
      limit = indent.length + dashes.length + (key ? 1 : 0);
    } else if (/^\s*(#|$)/.test(line)) {
      continue;
    }
    if (key && indent.length + dashes.length < limit) {
      path.unshift(key);
      limit = indent.length + dashes.length;
    }
    if (dashes && indent.length < limit) limit = indent.length + 0.5; // a list stands below its key, or right of it
  }
  return path;
}

// flowKeys are the keys around a column of a value, such as ["dhcp", "range"] in {dhcp: {range: …}}.
function flowKeys(value, column) {
  const keys = [];
  let depth = 0;
  for (const { 0: token, index } of value.matchAll(/[{}[\]]|(?<=[{,]\s*)[\w-]+(?=:\s)/g)) {
    if (index > column) break;
    if ("{[".includes(token)) depth++;
    else if ("}]".includes(token)) depth = Math.max(0, depth - 1);
    else keys[depth - 1] = token;
    keys.length = depth;
  }
  return keys.filter(Boolean);
}

// explain shows what the page has of the key at the cursor, or of the nearest one above it.
function explain() {
  const path = keyAt(text.value, text.selectionStart);
  const known = () => document.getElementById("key-" + path.join("."));
  while (path.length && !known()) path.pop();
  here.hidden = !path.length;
  if (path.length) here.querySelector("dl").replaceChildren(...known().cloneNode(true).children);
}

// filter shows the keys alone that have all words that are looked for.
function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const section of sections) {
    let shown = 0;
    for (const key of section.querySelectorAll(".key")) {
      key.hidden = !words.every((w) => key.textContent.toLowerCase().includes(w));
      if (!key.hidden) shown++;
    }
    section.hidden = !shown;
    section.open = words.length ? shown > 0 : unfolded.has(section);
    count += shown;
  }
  document.getElementById("found").textContent = words.length ? `${count} found.` : "";
}

for (const event of ["focus", "keyup", "click"]) text.addEventListener(event, explain);
find.addEventListener("input", filter);
find.parentElement.hidden = false;
