"use strict";
// Takes over what the server of a page tells it is new, and leaves what its reader opened, ticked and typed.
(() => {
  const here = () => document.getElementById("content");
  const live = (root) => [...root.querySelectorAll("[data-live]")];
  // Pages of one shape differ in their live parts only.
  const shape = (root) => [...live(root).map((one) => one.dataset.live),
    ...[...root.querySelectorAll(".chart[id]")].filter((one) => !one.closest("[data-label]")).map((one) => one.id),
    ...[...root.querySelectorAll("[data-label]")].map((one) => one.id)].join("\n");

  // Shows that a run has been asked to end, until it has.
  function asked(form) {
    form.dataset.asked = "";
    const button = form.querySelector("button");
    button.disabled = true;
    button.textContent = button.textContent.replace(/^Stop /, "Stopping ");
  }

  // Has the newer part opened, ticked and typed as the older one is.
  function keep(older, newer) {
    const named = (root) => new Map([...root.querySelectorAll("details")]
      .map((one) => [one.querySelector("summary").textContent, one]));
    const before = named(older);
    for (const [summary, one] of named(newer)) if (before.has(summary)) one.open = before.get(summary).open;
    const fields = (root) => new Map([...root.querySelectorAll("input, select, textarea")]
      .map((one) => [`${one.name}=${/radio|checkbox/.test(one.type) ? one.value : ""}`, one]));
    const filled = fields(older);
    for (const [name, one] of fields(newer)) {
      const other = filled.get(name);
      if (!other || one.type === "hidden") continue;
      if (/radio|checkbox/.test(one.type)) one.checked = other.checked;
      else if (other.value !== (other.defaultValue ?? "")) one.value = other.value;
    }
    const ending = new Set([...older.querySelectorAll("form.stop[data-asked] input")].map((one) => one.value));
    for (const one of newer.querySelectorAll("form.stop input")) if (ending.has(one.value)) asked(one.form);
  }

  function take({ title, html, data }) {
    document.title = title;
    const older = here(), newer = document.createElement("div");
    newer.innerHTML = html;  // which the server has escaped
    if (shape(older) === shape(newer)) {
      const parts = live(newer);
      live(older).forEach((part, i) => {
        if (part.innerHTML === parts[i].innerHTML) return;
        keep(part, parts[i]);
        const focused = part.contains(document.activeElement) ? path(part, document.activeElement) : null;
        const { scrollLeft } = part;
        part.replaceChildren(...parts[i].childNodes);
        part.scrollLeft = scrollLeft;
        if (focused) at(part, focused)?.focus({ preventScroll: true });
      });
    } else {
      keep(older, newer);
      older.replaceChildren(...newer.childNodes);
    }
    const charts = JSON.parse(data);
    if (charts) report.show(charts);
  }

  // The place of an element within another, which has the keyboard's focus after a change, too.
  const path = (root, element) => (element === root ? []
    : [...path(root, element.parentElement), [...element.parentElement.children].indexOf(element)]);
  const at = (root, places) => places.reduce((one, place) => one?.children[place], root);

  const notice = document.createElement("p");
  notice.className = "notice gone";
  notice.setAttribute("role", "status");
  notice.hidden = true;
  document.body.prepend(notice);
  const say = (words) => { notice.textContent = words; notice.hidden = !words; };
  // Without this a form that stops a run would load the page anew.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form.stop")) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form));
    asked(form);
    try {
      const answer = await fetch(form.action, { method: "POST", body, redirect: "manual" });
      if (answer.type === "opaqueredirect") return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      say(page.querySelector("main")?.textContent.trim() || `The server answers with status ${answer.status}.`);
    } catch {
      say("The server of this page does not answer: the run was not stopped.");
    }
  });

  // Only while the page is seen: all tabs of a browser share six connections to a server.
  let source;
  function follow() {
    source?.close();
    if (document.visibilityState === "hidden") return;
    source = new EventSource(document.body.dataset.events);
    source.onmessage = (event) => { say(""); take(JSON.parse(event.data)); };
    source.addEventListener("unreadable", (event) => say(JSON.parse(event.data)));
    source.onerror = () => say("The server of this page does not answer: what is shown here is the last that it sent.");
  }
  document.addEventListener("visibilitychange", follow);
  follow();
})();
