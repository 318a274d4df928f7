"use strict";
// What every page does: copy, relative times, theme, confirmation, finding, live parts. Pages work without it where they can.

(() => {
  const root = document.documentElement;
  const language = root.lang || "en";

  // Copy buttons: `data-copy` holds the text, `data-copy-from` the id of what holds it.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom)?.textContent ?? "";
    await copy(text);
    button.classList.add("done");
    const title = button.title;
    button.title = gettext("Copied");
    setTimeout(() => { button.classList.remove("done"); button.title = title; }, 1500);
  });

  async function copy(text) {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // plain http on a local network has no clipboard API
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  window.llmgwCopy = copy;

  // Relative times, kept true while the page is open; the exact one stays on hover.
  const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const STEPS = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  function times(within) {
    const now = Date.now();
    for (const time of within.querySelectorAll("time[data-ago]")) {
      const seconds = (Date.parse(time.dateTime) - now) / 1000;
      const [unit, size] = STEPS.find(([, s]) => Math.abs(seconds) >= s) || STEPS.at(-1);
      const words = relative.format(Math.trunc(seconds / size), unit);
      if (time.textContent !== words) time.textContent = words;
    }
  }
  times(document);
  setInterval(() => times(document), 1000);

  // On a phone a table's rows stand one below the other (`folds` in the style sheet); each cell then says its column.
  function fold(within) {
    for (const box of within.querySelectorAll(".table")) {
      const heads = [...box.querySelectorAll("thead th")];
      const rows = [...box.querySelectorAll("tbody tr")];
      if (!heads.length || rows.some((row) => row.cells.length !== heads.length)) continue;
      for (const row of rows) {
        [...row.cells].forEach((cell, i) => {
          if (i && !heads[i].querySelector(".hidden")) cell.dataset.label = heads[i].textContent.trim();
          if (!cell.textContent.trim() && !cell.querySelector("svg, input, meter")) cell.dataset.nothing = "";
        });
      }
      box.classList.add("folds");
    }
  }
  fold(document);

  // The theme changes at once; the server hears of it for the next page.
  document.querySelector("[data-theme-switch]")?.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button) return;
    event.preventDefault();
    const theme = button.value;
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    for (const other of button.form.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    const form = new FormData(button.form);
    form.set("theme", theme);
    fetch(button.form.action, { method: "POST", body: form, redirect: "manual" });
  });

  // Destructive forms ask first; `data-confirm-name` asks for the name of what will go.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (!form.dataset.confirm || form.dataset.confirmed) {
      if (form.dataset.sent) event.preventDefault(); // a second click on the way does nothing
      form.dataset.sent = "1";
      return;
    }
    event.preventDefault();
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", "confirm-title");
    const title = element("h2", "", form.dataset.confirmDo || gettext("Are you sure?"));
    title.id = "confirm-title";
    const inner = element("form", "stack");
    inner.method = "dialog";
    const go = element("button", "danger primary", form.dataset.confirmDo || gettext("Yes"));
    go.value = "go";
    const stay = element("button", "", gettext("Cancel"));
    stay.value = "";
    const buttons = element("div", "buttons");
    if (form.dataset.confirmName) {
      const label = element("label", "field", gettext("Type the name to go on:") + " " + form.dataset.confirmName);
      const input = element("input");
      input.autocomplete = "off";
      go.disabled = true;
      input.addEventListener("input", () => { go.disabled = input.value !== form.dataset.confirmName; });
      label.append(input);
      inner.append(label);
    }
    buttons.append(go, stay);
    inner.append(buttons);
    dialog.append(title, element("p", "", form.dataset.confirm), inner);
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "go") {
        form.dataset.confirmed = "1";
        if (form.dataset.confirmName) { // the server wants to read it, too
          const typed = element("input");
          typed.type = "hidden";
          typed.name = "confirm";
          typed.value = form.dataset.confirmName;
          form.append(typed);
        }
        form.requestSubmit(event.submitter ?? undefined);
      }
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    if (!form.dataset.confirmName) stay.focus();
  });

  function element(name, className = "", text = "") {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  // Options that opened stay open until something else is clicked.
  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll("details.options[open]")) if (!open.contains(event.target)) open.open = false;
  });

  // Ctrl-K: find a page, model, node, replica or request by a few letters.
  const opener = document.querySelector("[data-palette]");
  let palette = null;
  function find() {
    if (palette) return;
    palette = element("dialog", "palette");
    palette.setAttribute("aria-label", gettext("Find"));
    const input = element("input");
    input.type = "search";
    input.placeholder = gettext("A page, model, node, replica or request");
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-label", input.placeholder);
    input.setAttribute("aria-expanded", "true");
    input.setAttribute("aria-controls", "found");
    const list = element("div");
    list.id = "found";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", gettext("Found"));
    palette.append(input, list);
    let at = 0, asked = 0, timer = 0;
    const options = () => [...list.querySelectorAll("[role=option]")];
    function mark(index) {
      const all = options();
      if (!all.length) return input.removeAttribute("aria-activedescendant");
      at = (index + all.length) % all.length;
      all.forEach((o, i) => o.setAttribute("aria-selected", String(i === at)));
      input.setAttribute("aria-activedescendant", all[at].id);
      all[at].scrollIntoView({ block: "nearest" });
    }
    async function look() {
      const mine = ++asked;
      const answer = await fetch("/find?q=" + encodeURIComponent(input.value), { headers: { Accept: "application/json" } }).catch(() => null);
      if (!answer?.ok || mine !== asked) return;
      const { found } = await answer.json();
      list.replaceChildren(...found.map((hit, i) => {
        const option = element("div");
        option.setAttribute("role", "option");
        option.id = "found-" + i;
        option.dataset.to = hit.url;
        option.append(element("bdi", "", hit.label), element("small", "", hit.kind));
        return option;
      }));
      if (!found.length) list.append(element("p", "", gettext("Nothing by that name.")));
      mark(0);
    }
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 120); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); mark(at + (event.key === "ArrowDown" ? 1 : -1)); }
      if (event.key === "Enter") { event.preventDefault(); const to = options()[at]?.dataset.to; if (to) location.assign(to); }
    });
    list.addEventListener("click", (event) => { const to = event.target.closest("[role=option]")?.dataset.to; if (to) location.assign(to); });
    palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
    palette.addEventListener("close", () => { palette.remove(); palette = null; opener?.focus(); });
    document.body.append(palette);
    palette.showModal();
    look();
  }
  if (opener) {
    opener.addEventListener("click", find);
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") { event.preventDefault(); find(); }
    });
  }

  // A part that costs something is asked for when it is opened.
  async function page(address) {
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(answer.statusText);
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    fold(found);
    return found;
  }
  for (const more of document.querySelectorAll("details[data-load]")) {
    more.addEventListener("toggle", async () => {
      if (!more.open) return;
      const fresh = await page(more.dataset.load).catch(() => null);
      if (fresh) document.getElementById(more.dataset.into).replaceChildren(...fresh.body.childNodes);
    });
  }

  for (const part of document.querySelectorAll("div[data-load]")) {
    page(part.dataset.load).then((fresh) => part.replaceChildren(...fresh.body.childNodes)).catch(() => {});
  }

  addEventListener("pageshow", () => { for (const form of document.forms) delete form.dataset.sent; }); // back from the next page

  let asking = false;
  async function refresh() { // this page's own part is asked for again
    const part = document.querySelector("[data-fresh]");
    if (!part || asking || document.activeElement?.closest("[data-fresh] form")) return; // somebody chooses in it
    asking = true;
    const fresh = await page(location.href).catch(() => null);
    asking = false;
    const found = fresh?.querySelector("[data-fresh]");
    if (!found) return;
    times(found);
    const held = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceWith(document.adoptNode(found));
    if (held) found.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  }

  const every = Number(document.querySelector("[data-every]")?.dataset.every);
  if (every) setInterval(() => { if (!document.hidden && document.querySelector("[data-every]")) refresh(); }, every * 1000);

  // Live parts: the server sends HTML that its own templates made, by the id of the part that it replaces.
  const live = document.querySelector("[data-live]");
  if (live) {
    const sign = document.getElementById("live-sign");
    const say = (on) => { if (sign) { sign.classList.toggle("on", on); sign.textContent = on ? gettext("live") : gettext("reconnecting…"); } };
    let source = null;
    function listen() {
      source = new EventSource(live.dataset.live);
      source.addEventListener("open", () => say(true));
      source.addEventListener("error", () => {
        say(false);
        if (source.readyState === EventSource.CLOSED) setTimeout(listen, 3000); // refused for now: a browser gives up by itself
      });
      source.addEventListener("part", replace);
      source.addEventListener("moved", refresh);
    }
    function replace(event) {
      const { id, html } = JSON.parse(event.data);
      const part = document.getElementById(id);
      if (!part) return;
      const held = part.contains(document.activeElement) ? document.activeElement : null;
      const fresh = new DOMParser().parseFromString(html, "text/html").body;
      times(fresh);
      fold(fresh);
      const scroller = part.querySelector(".table");
      const left = scroller?.scrollLeft ?? 0;
      part.replaceChildren(...fresh.childNodes);
      if (left) { const again = part.querySelector(".table"); if (again) again.scrollLeft = left; }
      if (held?.getAttribute("href")) part.querySelector(`a[href="${CSS.escape(held.getAttribute("href"))}"]`)?.focus({ preventScroll: true });
    }
    listen();
    addEventListener("pagehide", () => source.close());
  }
})();
