// Markdown that a model wrote, as DOM nodes. It is never put in as HTML: text stays text, a link goes only to http, https
// or mail, and a picture from elsewhere is shown as a link, since loading it could carry the conversation away.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** The blocks of `text` as nodes for `parent`; those whose source did not change since the last call are kept. */
export function render(parent, text) {
  const wanted = blocks(text.replaceAll("\r\n", "\n").split("\n"));
  const kept = parent.blocks ?? [];
  let same = 0;
  while (same < kept.length && same < wanted.length && kept[same].source === wanted[same].source) same += 1;
  for (const old of kept.slice(same)) old.node.remove();
  const fresh = wanted.slice(same).map(({ source, make }) => ({ source, node: make() }));
  parent.append(...fresh.map((b) => b.node));
  parent.blocks = [...kept.slice(0, same), ...fresh];
}

function blocks(lines) {
  const found = [];
  let i = 0;
  const add = (from, make) => found.push({ source: lines.slice(from, i).join("\n"), make });
  while (i < lines.length) {
    const from = i;
    const line = lines[i];
    if (!line.trim()) { i += 1; continue; }
    const fence = FENCE.exec(line);
    if (fence) {
      const close = new RegExp("^ {0,3}" + (fence[1][0] === "`" ? "`" : "~") + "{" + fence[1].length + ",}\\s*$");
      i += 1;
      const body = [];
      while (i < lines.length && !close.test(lines[i])) body.push(lines[i++]);
      i = Math.min(i + 1, lines.length);
      add(from, () => code(body.join("\n"), fence[2]));
      continue;
    }
    const heading = HEADING.exec(line);
    if (heading) { i += 1; add(from, () => inlineInto(element("h" + Math.min(6, heading[1].length + 2)), heading[2])); continue; }
    if (RULE.test(line)) { i += 1; add(from, () => element("hr")); continue; }
    if (QUOTE.test(line)) {
      const body = [];
      while (i < lines.length && QUOTE.test(lines[i])) body.push(QUOTE.exec(lines[i++])[1]);
      add(from, () => nested(element("blockquote"), body));
      continue;
    }
    if (line.includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && DIVIDER.test(lines[i + 1])) {
      const rows = [line];
      const aligns = cells(lines[i + 1]).map((c) => (/^:-+:$/.test(c) ? "center" : /-:$/.test(c) ? "right" : ""));
      i += 2;
      while (i < lines.length && lines[i].includes("|") && lines[i].trim()) rows.push(lines[i++]);
      add(from, () => table(rows, aligns));
      continue;
    }
    if (ITEM.test(line)) {
      while (i < lines.length) {
        if (ITEM.test(lines[i]) || /^\s{2,}\S/.test(lines[i])) { i += 1; continue; }
        if (!lines[i].trim() && i + 1 < lines.length && (ITEM.test(lines[i + 1]) || /^\s{2,}\S/.test(lines[i + 1]))) { i += 1; continue; }
        break;
      }
      const body = lines.slice(from, i);
      add(from, () => list(body));
      continue;
    }
    const body = [];
    while (i < lines.length && lines[i].trim() && (i === from || !starts(lines[i]))) body.push(lines[i++]);
    add(from, () => inlineInto(element("p"), body.join("\n")));
  }
  return found;
}

const starts = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);

function nested(parent, lines) {
  for (const { make } of blocks(lines)) parent.append(make());
  return parent;
}

function code(text, language) {
  const box = element("div", "code");
  const pre = element("pre");
  pre.tabIndex = 0;
  const inner = element("code");
  inner.textContent = text;
  inner.translate = false;
  pre.append(inner);
  if (language) box.append(Object.assign(element("span", "lang"), { textContent: language }));
  const button = element("button", "copy");
  button.type = "button";
  button.title = gettext("Copy the code");
  button.setAttribute("aria-label", button.title);
  button.dataset.copy = text;
  button.append(document.getElementById("sign-copy")?.content.cloneNode(true) ?? "⧉");
  box.append(pre, button);
  return box;
}

function list(lines) {
  const first = ITEM.exec(lines[0]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const made = element(ordered ? "ol" : "ul");
  if (ordered && Number.parseInt(first[2], 10) !== 1) made.start = Number.parseInt(first[2], 10);
  let item = null;
  const flush = () => {
    if (!item) return;
    const li = element("li");
    const parts = blocks(item);
    parts.forEach(({ make }, index) => {
      const node = make();
      if (index === 0 && node.tagName === "P") li.append(...node.childNodes); // a tight item has no paragraph
      else li.append(node);
    });
    made.append(li);
  };
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && match[1].length <= indent + 1) { flush(); item = [match[3]]; }
    else item?.push(line.replace(new RegExp("^\\s{0," + (indent + 4) + "}"), (s) => " ".repeat(Math.max(0, s.length - indent - first[2].length - 1))));
  }
  flush();
  return made;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));

function table(rows, aligns) {
  const box = element("div", "grid");
  box.tabIndex = 0;
  const made = element("table");
  const head = element("thead");
  const body = element("tbody");
  rows.forEach((line, r) => {
    const row = element("tr");
    cells(line).slice(0, Math.max(aligns.length, 1)).forEach((text, c) => {
      const cell = inlineInto(element(r ? "td" : "th"), text);
      if (aligns[c] === "right") cell.classList.add("right");
      row.append(cell);
    });
    (r ? body : head).append(row);
  });
  made.append(head, body);
  box.append(made);
  return box;
}

// Inline marks, the longest first; each gives nodes for what it matched.
const INLINE = [
  [/^\\([\\`*_{}[\]()#+\-.!|~<>])/, (m) => [m[1]]],
  [/^(`+)([\s\S]*?[^`])\1(?!`)/, (m) => [Object.assign(element("code"), { textContent: m[2].replace(/^ (.*) $/s, "$1") })]],
  [/^!\[([^\]]*)\]\(\s*<?([^\s)>]*)>?(?:\s+["'][^"']*["'])?\s*\)/, (m) => picture(m[1], m[2])],
  [/^\[((?:[^\][]|\[[^\]]*\])*)\]\(\s*<?([^\s)>]*(?:\([^\s)]*\)[^\s)>]*)?)>?(?:\s+["'][^"']*["'])?\s*\)/, (m) => link(m[1], m[2])],
  [/^<((?:https?:\/\/|mailto:)[^\s<>]+)>/, (m) => link(m[1], m[1], true)],
  [/^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]}*_]/, (m) => link(m[0], m[0], true)],
  [/^\*\*(?=\S)([\s\S]*?\S)\*\*/, (m) => [inlineInto(element("strong"), m[1])]],
  [/^__(?=\S)([\s\S]*?\S)__(?!\w)/, (m) => [inlineInto(element("strong"), m[1])], true],
  [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, (m) => [inlineInto(element("em"), m[1])]],
  [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?!\w)/, (m) => [inlineInto(element("em"), m[1])], true],
  [/^~~(?=\S)([\s\S]*?\S)~~/, (m) => [inlineInto(element("del"), m[1])]],
  [/^(?: {2,}|\\)\n/, () => [element("br")]],
];

function inlineInto(parent, text) {
  let plain = "";
  let rest = text;
  const flush = () => { if (plain) parent.append(plain); plain = ""; };
  next: while (rest) {
    const skip = /^[^\\`!\[<h*_~ \n]+/.exec(rest); // the quick way over what can begin no mark
    if (skip) { plain += skip[0]; rest = rest.slice(skip[0].length); continue; }
    for (const [pattern, make, boundary] of INLINE) {
      if (boundary && /\w$/.test(plain)) continue;
      const match = pattern.exec(rest);
      if (!match) continue;
      flush();
      parent.append(...make(match));
      rest = rest.slice(match[0].length);
      continue next;
    }
    plain += rest[0];
    rest = rest.slice(1);
  }
  flush();
  return parent;
}

/** The address when it may be followed, else null. */
export function safe(address) {
  if (/[\u0000-\u0020]/.test(address)) return null;
  let url;
  try { url = new URL(address); } catch { return null; }
  return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
}

function link(label, address, bare = false) {
  const to = safe(address);
  if (!to) return [bare ? label : `[${label}](${address})`];
  const made = element("a");
  made.href = to;
  made.rel = "noopener noreferrer nofollow";
  made.target = "_blank";
  if (bare) made.textContent = label; else inlineInto(made, label);
  return [made];
}

function picture(label, address) {
  const to = safe(address);
  if (!to) return [`![${label}](${address})`];
  const made = element("a");
  made.href = to;
  made.rel = "noopener noreferrer nofollow";
  made.target = "_blank";
  made.textContent = interpolate(gettext("picture, not loaded: %s"), [label || address]);
  return [made];
}

function element(name, className = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  return made;
}
