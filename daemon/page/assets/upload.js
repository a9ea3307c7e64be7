// Uploads a file by the appliance's upload API: its SHA-256 is computed first, then it is announced and sent in pieces.
// After a lost connection, or when the same file is chosen again, the API says where it resumes.
"use strict";

(() => {
  const api = "/uploads/api/v1/baremetalcluster";
  const pieceSize = 8 << 20;
  const readSize = 1 << 20;
  const patience = 5 * 60 * 1000; // ms without progress until it is given up
  const memory = "firstlight-upload"; // what was begun, in the browser's own store
  const at = (name) => document.getElementById("upload-" + name);
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  let current = null; // the upload that is under way

  // SHA-256 (FIPS 180-4), in pieces, which the browser's own cannot do.
  const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) >>> 0;
  const start = [];
  const rounds = [];
  for (let n = 2; rounds.length < 64; n++) {
    let isPrime = true;
    for (let d = 2; d * d <= n; d++) isPrime = isPrime && n % d !== 0;
    if (!isPrime) continue;
    if (start.length < 8) start.push(fraction(Math.sqrt(n)));
    rounds.push(fraction(Math.cbrt(n)));
  }
  const constants = Uint32Array.from(rounds);

  class Digest {
    constructor() {
      this.state = Uint32Array.from(start);
      this.words = new Uint32Array(64);
      this.rest = new Uint8Array(64);
      this.used = 0;
      this.length = 0;
    }

    add(bytes) {
      this.length += bytes.length;
      let from = 0;
      if (this.used > 0) {
        from = Math.min(64 - this.used, bytes.length);
        this.rest.set(bytes.subarray(0, from), this.used);
        this.used += from;
        if (this.used < 64) return;
        this.block(this.rest, 0);
      }
      for (; from + 64 <= bytes.length; from += 64) this.block(bytes, from);
      this.used = bytes.length - from;
      this.rest.set(bytes.subarray(from));
    }

    block(bytes, from) {
      const w = this.words;
      for (let i = 0; i < 16; i++, from += 4) {
        w[i] = (bytes[from] << 24) | (bytes[from + 1] << 16) | (bytes[from + 2] << 8) | bytes[from + 3];
      }
      for (let i = 16; i < 64; i++) {
        const x = w[i - 15];
        const y = w[i - 2];
        const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
      }
      let [a, b, c, d, e, f, g, h] = this.state;
      for (let i = 0; i < 64; i++) {
        const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t1 = (h + s1 + ((e & f) ^ (~e & g)) + constants[i] + w[i]) | 0;
        const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
      }
      [a, b, c, d, e, f, g, h].forEach((x, i) => (this.state[i] += x));
    }

    hex() {
      const length = this.length;
      const end = new Uint8Array((this.used < 56 ? 64 : 128) - this.used);
      const view = new DataView(end.buffer);
      end[0] = 0x80;
      view.setUint32(end.length - 8, Math.floor(length / 2 ** 29));
      view.setUint32(end.length - 4, (length * 8) >>> 0);
      this.add(end);
      return [...this.state].map((x) => x.toString(16).padStart(8, "0")).join("");
    }
  }

  function size(n) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
    return `${n.toFixed(n < 10 && i > 0 ? 1 : 0)} ${units[i]}`;
  }

  function say(text, isBad) {
    at("state").textContent = text;
    at("state").classList.toggle("error", Boolean(isBad));
  }

  function show(what, done, total) {
    at("progress").hidden = false;
    at("bar").value = total > 0 ? done / total : 0;
    at("percent").textContent = `${what} ${size(done)} of ${size(total)}, ${Math.floor((100 * done) / total)} %`;
  }

  // Refusal is what the API says; again means that another try may help.
  class Refusal extends Error {
    constructor(text, status) {
      super(text);
      this.status = status;
      this.again = status === 408 || status === 409 || status === 429 || status >= 500 && status !== 507;
    }
  }

  // ask sends a request, and throws what the API refuses, in its own words.
  async function ask(method, path, body, headers) {
    const csrf = document.querySelector("header input[name=csrf]").value;
    const answer = await fetch(api + path, {
      method,
      body,
      headers: { ...headers, "X-CSRF-Token": csrf },
      cache: "no-store",
      signal: current.abort.signal,
    });
    if (answer.ok) return answer;
    if (answer.status === 401) {
      throw new Refusal("Your log-in has ended. Log in again and choose the same file: it resumes.", 401);
    }
    const text = await answer.text();
    let detail = text;
    try {
      detail = JSON.parse(text).detail || text;
    } catch {
      // it is no problem of the API's
    }
    throw new Refusal(detail.trim() || `The appliance answered ${answer.status}.`, answer.status);
  }

  async function read(path) {
    const record = await (await ask("GET", path)).json();
    return record;
  }

  async function digest(file) {
    const sum = new Digest();
    for (let from = 0; from < file.size; from += readSize) {
      if (current.abort.signal.aborted) throw new DOMException("stopped", "AbortError");
      sum.add(new Uint8Array(await file.slice(from, from + readSize).arrayBuffer()));
      show("Read", Math.min(from + readSize, file.size), file.size);
    }
    return sum.hex();
  }

  // begin announces a file, or finds what was announced before. It returns the record.
  async function begin(u) {
    try {
      const have = await read(u.path);
      if (have.image_length === u.file.size && have.sha256 === u.sum) return have;
      throw new Refusal(`There is another ${u.name} already, of ${have.image_length} bytes with sha256 ` +
        `${have.sha256 || "not known yet"}. Use another name.`, 422);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
    }
    const metadata = {
      owner: u.owner, cluster_name: u.cluster, type: u.kind, image_name: u.name, image_offset: 0,
      image_length: u.file.size, upload_complete: false, sha256: u.sum, description: { image_records: [] },
    };
    const form = new FormData();
    form.append("metadata", new Blob([JSON.stringify(metadata)], { type: "application/json" }));
    form.append("file", new Blob([]), u.name);
    return (await ask("POST", u.scope, form)).json();
  }

  // send sends what remains, piece by piece, and asks where to resume after each failure.
  async function send(u, offset) {
    let moved = Date.now();
    let pause = 1000;
    while (offset < u.file.size) {
      try {
        show("Sent", offset, u.file.size);
        const answer = await ask("PATCH", u.path, u.file.slice(offset, offset + pieceSize), {
          "Content-Type": "application/octet-stream", "Upload-Offset": String(offset),
        });
        offset = Number(answer.headers.get("Upload-Offset"));
        moved = Date.now();
        pause = 1000;
        say("Uploading.");
      } catch (problem) {
        if (problem.name === "AbortError" || problem instanceof Refusal && !problem.again) throw problem;
        if (Date.now() - moved > patience) throw problem;
        const why = problem instanceof Refusal ? problem.message.replace(/\.$/, "") : "The connection is lost";
        say(`${why}. Trying again from ${size(offset)}.`);
        await wait(pause);
        pause = Math.min(2 * pause, 15000);
        const have = await read(u.path).catch((again) => {
          if (again instanceof Refusal && !again.again) throw again;
        });
        if (have) offset = have.image_offset;
      }
    }
    show("Sent", offset, u.file.size);
  }

  // finish waits until the appliance has checked what it got.
  async function finish(u) {
    say("Sent. The appliance is checking it.");
    for (let tries = 0; tries < 120; tries++) {
      const have = await read(u.path);
      if (have.upload_complete) {
        if (have.sha256 !== u.sum) throw new Refusal(`The appliance found sha256 ${have.sha256}, not ${u.sum}.`, 422);
        return have;
      }
      await wait(1000);
    }
    throw new Refusal("The appliance does not say that it is complete; load this page again later.", 503);
  }

  async function upload(u) {
    say("Computing its checksum.");
    const known = recall();
    u.sum = known && isSame(known, u) ? known.sum : await digest(u.file);
    at("sum").textContent = `sha256 ${u.sum}`;
    remember(u);
    const have = await begin(u);
    if (!have.upload_complete) {
      say(have.image_offset > 0 ? `Resuming at ${size(have.image_offset)}.` : "Uploading.");
      await send(u, have.image_offset);
    }
    const done = await finish(u);
    show("Sent", u.file.size, u.file.size);
    say(`${u.name} is complete, and the appliance found the same sha256.` + (done.not_served ? ` ${done.not_served}` : ""));
    localStorage.removeItem(memory);
  }

  // What was begun is kept, so that the same file is resumed after a reload without being read first: the appliance
  // compares the sum at the end anyway.
  const describe = (u) => ({
    file: u.file.name, bytes: u.file.size, changed: u.file.lastModified, kind: u.kind, owner: u.owner,
    cluster: u.cluster, name: u.name, sum: u.sum,
  });

  function remember(u) {
    localStorage.setItem(memory, JSON.stringify(describe(u)));
  }

  function recall() {
    try {
      return JSON.parse(localStorage.getItem(memory));
    } catch {
      return null;
    }
  }

  function isSame(known, u) {
    return known.file === u.file.name && known.bytes === u.file.size && known.changed === u.file.lastModified;
  }

  async function submit(event) {
    event.preventDefault();
    const file = at("file").files[0];
    if (current || !file) return;
    const u = {
      file, kind: at("kind").value, owner: at("owner").value.trim(), cluster: at("cluster").value.trim(),
      name: at("name").value.trim(),
    };
    u.scope = `/${encodeURIComponent(u.owner)}/${encodeURIComponent(u.cluster)}/${u.kind}`;
    u.path = `${u.scope}/${encodeURIComponent(u.name)}`;
    current = { abort: new AbortController() };
    at("stop").hidden = false;
    try {
      if (file.size === 0) throw new Refusal("The file is empty.", 422);
      await upload(u);
    } catch (problem) {
      const isStopped = problem.name === "AbortError";
      say(isStopped ? "It is stopped. Upload the same file again to resume." : problem.message, !isStopped);
    } finally {
      current = null;
      at("stop").hidden = true;
    }
  }

  // choose fills in the name of a file, in characters that the API takes.
  function choose() {
    const file = at("file").files[0];
    if (file) at("name").value = file.name.replace(/[^A-Za-z0-9._+~-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  }

  // prepare shows the form once it is there, with what was begun before.
  function prepare() {
    const form = at("form");
    if (!form || !form.hidden) return;
    form.hidden = false;
    form.addEventListener("submit", submit);
    at("stop").addEventListener("click", () => current && current.abort.abort());
    at("file").addEventListener("change", choose);
    form.addEventListener("dragover", (event) => {
      event.preventDefault();
      form.classList.add("over");
    });
    form.addEventListener("dragleave", () => form.classList.remove("over"));
    form.addEventListener("drop", (event) => {
      event.preventDefault();
      form.classList.remove("over");
      if (current || event.dataTransfer.files.length === 0) return;
      at("file").files = event.dataTransfer.files;
      choose();
    });
    const known = recall();
    if (!known) return;
    at("kind").value = known.kind;
    at("owner").value = known.owner;
    at("cluster").value = known.cluster;
    at("name").value = known.name;
    say(`The upload of ${known.file} was interrupted. Choose the same file again to resume.`);
  }

  addEventListener("beforeunload", (event) => current && event.preventDefault());
  new MutationObserver(prepare).observe(document.getElementById("main"), { childList: true });
  prepare();
})();
