// Shows the serial console of a node, and sends what is typed there. The screen is drawn by the appliance.
"use strict";

const box = document.getElementById("console-text");
if (box) watchConsole();

function watchConsole() {
  const part = (name) => document.getElementById(`console-${name}`);
  const csrf = document.querySelector("header input[name=csrf]").value;
  const maxPast = 800; // lines
  const maxSent = 300; // characters of one request
  const keys = {
    Enter: "\r", Backspace: "\x7f", Escape: "\x1b", Tab: "\t", Delete: "\x1b[3~", Insert: "\x1b[2~",
    ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F",
    PageUp: "\x1b[5~", PageDown: "\x1b[6~", F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~",
    F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~", F11: "\x1b[23~", F12: "\x1b[24~",
    "Ctrl-C": "\x03",
  };
  let stream = null;
  let past = [];
  let waiting = ""; // typed, and not sent yet
  let isSending = false;

  function state(text, isError) {
    part("state").textContent = text;
    part("state").className = isError ? "error" : "";
  }

  function show(isOpen) {
    part("form").hidden = part("keys").hidden = !isOpen;
    part("close").hidden = !stream;
    part("open").hidden = Boolean(stream);
  }

  function draw(screen, isFirst) {
    const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    past = (isFirst ? [] : past).concat(screen.Past || []).slice(-maxPast);
    if (isFirst || screen.Past) part("past").textContent = past.map((line) => `${line}\n`).join("");
    let last = screen.Row;
    screen.Lines.forEach((line, i) => { if (line && i > last) last = i; });
    const lines = screen.Lines.slice(0, last + 1);
    const at = lines[screen.Row].padEnd(screen.Column + 1);
    part("before").textContent = [...lines.slice(0, screen.Row), at.slice(0, screen.Column)].join("\n");
    part("cursor").textContent = at[screen.Column];
    part("after").textContent = [at.slice(screen.Column + 1), ...lines.slice(screen.Row + 1)].join("\n");
    if (isFirst || isAtEnd) box.scrollTop = box.scrollHeight;
  }

  function open() {
    if (stream) return;
    stream = new EventSource(`${location.pathname}/stream`);
    state("Its BMC is being asked. This takes some seconds.");
    show(false);
    stream.addEventListener("begin", (event) => {
      const screen = JSON.parse(event.data);
      draw(screen, true);
      show(true);
      const isEmpty = !screen.Past && screen.Lines.every((line) => !line);
      state(isEmpty ? "It is open. Nothing was printed since; Enter has most systems print something." : "It is open.");
    });
    stream.addEventListener("screen", (event) => {
      draw(JSON.parse(event.data), false);
      if (part("state").textContent !== "It is open.") state("It is open.");
    });
    stream.addEventListener("end", (event) => {
      const why = JSON.parse(event.data);
      close();
      state(`It is closed: ${why.Text}.${why.Fix ? ` What to do: ${why.Fix}.` : ""}`.replaceAll("..", "."), true);
    });
    stream.onerror = () => {
      if (stream && stream.readyState === EventSource.CONNECTING) return state("The appliance does not answer. Trying again.", true);
      close();
      state("It is closed: the appliance does not open it now. Load the page again.", true);
    };
  }

  function close() {
    if (stream) stream.close();
    stream = null;
    waiting = "";
    show(false);
  }

  // send sends what is typed, in order, one request at a time.
  async function send(text) {
    waiting += text;
    if (isSending) return;
    isSending = true;
    try {
      while (waiting && stream) {
        const piece = [...waiting].slice(0, maxSent).join("");
        const body = new URLSearchParams({ csrf, text: piece });
        const answer = await fetch(location.pathname, { method: "POST", body, cache: "no-store" });
        if (answer.status === 401) return location.reload(); // to the log-in
        if (answer.status === 429) {
          await new Promise((resolve) => setTimeout(resolve, 1000));
          continue;
        }
        waiting = waiting.slice(piece.length);
        if (!answer.ok) {
          waiting = "";
          state(await answer.text(), true);
        }
      }
    } catch {
      waiting = "";
      state("What was typed may not have arrived: the appliance does not answer.", true);
    } finally {
      isSending = false;
    }
  }

  function codeOf(event) {
    if (event.metaKey || event.altKey || event.key === "Tab" || event.isComposing) return "";
    if (event.ctrlKey) {
      if (event.key.toLowerCase() === "c" && String(getSelection())) return ""; // it is copied
      return /^[a-z[\]\\^_]$/i.test(event.key) && event.key.toLowerCase() !== "v"
        ? String.fromCharCode(event.key.toUpperCase().charCodeAt(0) & 0x1f) : "";
    }
    return keys[event.key] || ([...event.key].length === 1 ? event.key : "");
  }

  box.addEventListener("keydown", (event) => {
    const code = stream ? codeOf(event) : "";
    if (!code) return;
    event.preventDefault();
    send(code);
  });
  box.addEventListener("paste", (event) => {
    event.preventDefault();
    if (stream) send(event.clipboardData.getData("text").replaceAll(/\r?\n/g, "\r"));
  });
  part("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send(`${part("line").value}\r`);
    part("line").value = "";
  });
  part("keys").addEventListener("click", (event) => {
    const key = event.target.dataset.key;
    if (key) send(keys[key]);
  });
  part("open").addEventListener("click", () => { open(); box.focus(); });
  part("close").addEventListener("click", () => { close(); state("It is closed."); part("open").focus(); });
  addEventListener("pagehide", close);
  open();
}
