// Keys, forms that are sent without leaving the page, and parts of pages that come later.
"use strict";
(() => {
  const UNSENT = "fraudlake-unsent";
  const notices = document.getElementById("notices");
  const token = document.querySelector("meta[name=form-token]").content;

  function notice(text, kind, ...buttons) {
    const box = document.createElement("div");
    box.className = "notice " + kind;
    box.setAttribute("role", kind === "bad" ? "alert" : "status");
    const line = document.createElement("p");
    line.textContent = text;
    box.append(line);
    if (buttons.length) {
      const row = document.createElement("div");
      row.className = "row";
      for (const [label, act] of buttons) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = label;
        button.addEventListener("click", () => { box.remove(); act(); });
        row.append(button);
      }
      box.append(row);
    }
    notices.replaceChildren(box);
    box.scrollIntoView({ block: "nearest" });
  }

  // What could not be sent is kept, with the id of its event: sent again, it is recorded once.
  function keep(sent) {
    localStorage.setItem(UNSENT, JSON.stringify(sent));
    notice(`The desk did not answer, so ${sent.what} may not be recorded. Nothing is lost: send it again once the desk runs. ` +
      "It is recorded once, however often you send it.", "bad", ["Send again", () => send(sent)], ["Discard", () => localStorage.removeItem(UNSENT)]);
  }

  // What happened to several items is the answer itself, since no address has it.
  function show(part) {
    const place = document.createElement("div");
    place.innerHTML = part; // the desk has escaped it
    notices.replaceChildren();
    document.getElementById("main").replaceChildren(notices, place);
    window.scrollTo(0, 0);
  }

  async function send(sent) {
    const body = new URLSearchParams(sent.body);
    body.set("form", token);
    let answer, result;
    try {
      answer = await fetch(sent.action, { method: "POST", body, headers: { accept: "application/json" }, signal: AbortSignal.timeout(60000) });
      result = await answer.json();
    } catch {
      keep(sent);
      return false;
    }
    // After a restart the desk answers 403 until its new address is open, so that the form must stay stored.
    if (answer.status !== 403) localStorage.removeItem(UNSENT);
    if (answer.ok) {
      if (result.part) show(result.part);
      else location.assign(result.next);
      return true;
    }
    notice(result.error, "bad", ["Load the page again", () => location.reload()]);
    return false;
  }

  // What is written and not sent is a draft of this browser: neither a key nor a conflict loses it.
  const drafts = (form) => [...form.querySelectorAll("#reason, #note")].map((field) => [field, `fraudlake-draft ${form.getAttribute("action")} ${field.name}`]);
  const drop = (form) => { for (const [, name] of drafts(form)) localStorage.removeItem(name); };
  for (const form of document.querySelectorAll("form#verdict")) {
    for (const [field, name] of drafts(form)) {
      field.value = localStorage.getItem(name) ?? field.value;
      field.addEventListener("input", () => field.value ? localStorage.setItem(name, field.value) : localStorage.removeItem(name));
    }
  }

  for (const form of document.querySelectorAll("form[data-send]")) {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (form.dataset.busy) return;
      form.dataset.busy = "1";
      const body = new URLSearchParams(new FormData(form, event.submitter)).toString();
      const action = event.submitter?.getAttribute("formaction") || form.getAttribute("action");
      const done = await send({ action, body, what: form.dataset.send });
      if (done) drop(form);
      else delete form.dataset.busy;
    });
  }

  const unsent = localStorage.getItem(UNSENT);
  if (unsent) {
    const sent = JSON.parse(unsent);
    notice(`This was not answered earlier: ${sent.what}.`, "bad", ["Send again", () => send(sent)], ["Discard", () => localStorage.removeItem(UNSENT)]);
  }

  const choice = (row) => row.querySelector("input[name=item]");
  const all = document.querySelector(".all input");
  function count() {
    if (!all) return;
    const chosen = document.querySelectorAll("input[name=item]:checked").length;
    all.closest("form").querySelector("output").value = `${chosen} chosen`;
    if (chosen) all.closest("details").open = true;
    else all.checked = false;
  }

  const everyRow = [...document.querySelectorAll("tr[data-href]")];
  // Back shows the queue as it was left (Chromium 156 does so despite no-store): its states may have changed since.
  if (everyRow.length) window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  let rows = everyRow, at = -1;
  document.getElementById("find")?.addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    rows[at]?.classList.remove("selected");
    at = -1;
    rows = everyRow.filter((row) => words.every((word) => row.textContent.toLowerCase().includes(word)));
    for (const row of everyRow) {
      row.hidden = !rows.includes(row);
      if (row.hidden && choice(row)) choice(row).checked = false; // nothing is done with what one does not see
    }
    count();
    const none = document.getElementById("none");
    if (none) none.hidden = rows.length > 0;
  });
  function select(to) {
    if (!rows.length) return;
    rows[at]?.classList.remove("selected");
    at = Math.max(0, Math.min(rows.length - 1, to));
    rows[at].classList.add("selected");
    rows[at].scrollIntoView({ block: "nearest" });
    rows[at].querySelector("a").focus({ preventScroll: true });
  }

  if (all) {
    all.parentElement.hidden = false;
    all.addEventListener("change", () => {
      const most = Number(all.dataset.most);
      for (const row of everyRow) choice(row).checked = all.checked && rows.slice(0, most).includes(row);
      count();
    });
    for (const row of everyRow) choice(row).addEventListener("change", count);
    count(); // after Back, a browser has them still
  }

  // Keys that work alone can be hit by chance, or by what is spoken (WCAG 2.1.4).
  const MODE = "fraudlake-keys", modes = document.getElementById("key-mode");
  if (modes) {
    modes.value = localStorage.getItem(MODE) ?? "";
    modes.addEventListener("change", () => localStorage.setItem(MODE, modes.value));
  }

  document.addEventListener("keydown", (event) => {
    const mode = localStorage.getItem(MODE);
    if (event.ctrlKey || event.metaKey || event.altKey !== (mode === "alt") || mode === "off" || event.isComposing) return;
    const where = event.target;
    if (where.closest("textarea, select, dialog[open]") || where.matches("input:not([type=range]):not([type=checkbox])")) {
      if (event.key === "Escape") where.blur();
      return;
    }
    if (event.key === "j" || event.key === "k") {
      select(at + (event.key === "j" ? 1 : -1));
      return;
    }
    if (event.key === "x" && rows[at] && choice(rows[at])) {
      choice(rows[at]).click();
      return;
    }
    const target = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key && !one.disabled);
    if (!target || event.repeat) return;
    event.preventDefault();
    if (target.matches("textarea, input:not([type=checkbox])")) target.focus(); else target.click();
  });

  for (const button of document.querySelectorAll("[data-opens]")) {
    button.addEventListener("click", () => document.getElementById(button.dataset.opens).showModal());
  }

  const loads = new WeakMap();
  async function load(place, address) {
    loads.get(place)?.abort();
    const { signal } = loads.set(place, new AbortController()).get(place);
    place.setAttribute("aria-busy", "true");
    let text, ok = false;
    try {
      const answer = await fetch(address, { headers: { accept: "text/html", "x-part": "1" }, signal });
      ok = answer.ok;
      text = await answer.text();
    } catch {
      text = "";
    }
    if (signal.aborted) return; // a newer answer comes, or is there
    place.removeAttribute("aria-busy");
    if (ok) place.innerHTML = text; // the desk has escaped it
    else place.textContent = text || "The desk does not answer: is it still running?";
  }

  for (const place of document.querySelectorAll("[data-load]")) {
    const folded = place.closest("details");
    if (folded) folded.addEventListener("toggle", () => load(place, place.dataset.load), { once: true });
    else load(place, place.dataset.load);
  }

  // On a narrow screen the time axis is wider than its place: the case comes into view.
  for (const place of document.querySelectorAll(".timeline-of .scroll")) {
    const mark = place.querySelector("svg .of-case");
    if (mark) place.scrollLeft = mark.getBoundingClientRect().left - place.getBoundingClientRect().left - place.clientWidth / 2;
  }

  const sliders = document.getElementById("limits");
  if (sliders) {
    const place = document.getElementById("backtest");
    let timer;
    sliders.addEventListener("input", (event) => {
      const moved = event.target;
      if (!moved.dataset.limit) return;
      for (const other of sliders.querySelectorAll(`[data-limit="${moved.dataset.limit}"]`)) if (other !== moved) other.value = moved.value;
      clearTimeout(timer);
      timer = setTimeout(() => {
        const values = new URLSearchParams();
        for (const one of sliders.querySelectorAll("input[type=number][data-limit]")) values.set(one.dataset.limit, one.value);
        load(place, `${sliders.dataset.backtest}?${values}`);
      }, 200);
    });
  }
})();
