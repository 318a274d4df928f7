// The chat page: a conversation kept in this tab, streamed from the gateway by a token of five minutes.

import { render } from "./markdown.js";
import { complete, Tokens, Trouble, trouble } from "./stream.js";

const page = document.getElementById("chat");
const $ = (id) => document.getElementById(id);
const [model, project, system, temperature, most] = ["model", "project", "system", "temperature", "most"].map($);
const [talk, turns, said, form, text, send, stop] = ["talk", "turns", "said", "ask", "text", "send", "stop"].map($);
const language = document.documentElement.lang || "en";
const figure = (value, digits = 0) => new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(value);
const tokens = new Tokens(page.dataset.token, page.dataset.csrf);
const PLACE = "llmgw-chat:" + page.dataset.person;

let messages = []; // {role, content, meta?, trouble?, stopped?}
let running = null; // AbortController
let follow = true;

// Keeping

function keep() {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify({ messages, model: model.value, system: system.value, temperature: temperature.value, most: most.value, project: project.value }));
  } catch { /* full or forbidden: the conversation lives on in the page */ }
}

function recall() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
    messages = Array.isArray(kept.messages) ? kept.messages : [];
    system.value = kept.system ?? "";
    temperature.value = kept.temperature ?? "";
    most.value = kept.most ?? "";
    if (kept.project && [...(project.options ?? [])].some((o) => o.value === kept.project)) project.value = kept.project;
    return kept.model ?? "";
  } catch { return ""; }
}

// Drawing

function element(name, className = "", words = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (words) made.textContent = words;
  return made;
}

function action(words, run) {
  const button = element("button", "quiet", words);
  button.type = "button";
  button.addEventListener("click", run);
  return button;
}

function draw() {
  const notes = [...turns.querySelectorAll(":scope > .note")];
  turns.replaceChildren(...notes, ...messages.map(turn));
  if (!messages.length && !notes.length) turns.append(hello());
}

function hello() {
  const box = element("div", "hello");
  box.append(element("h2", "", gettext("What shall we talk about?")));
  const ideas = element("div", "ideas");
  for (const idea of [gettext("Who are you?"), "3+4=?", gettext("Count to 12")]) ideas.append(action(idea, () => { text.value = idea; ask(); }));
  for (const button of ideas.children) button.className = "";
  box.append(ideas);
  return box;
}

function turn(message, index) {
  const mine = message.role === "user";
  const box = element("article", "turn " + (mine ? "mine" : "theirs"));
  box.setAttribute("aria-label", mine ? gettext("You") : message.model || gettext("Model"));
  const body = element("div", "body" + (mine ? "" : " md"));
  body.dir = "auto";
  if (mine) body.textContent = message.content; else render(body, message.content);
  box.append(body);
  if (!mine && !message.content && !message.trouble && !message.stopped && running && index === messages.length - 1) {
    const dots = element("div", "waiting");
    dots.setAttribute("aria-hidden", "true");
    dots.append(element("i"), element("i"), element("i"));
    body.append(dots);
  }
  if (message.trouble) box.append(troubled(message.trouble));
  box.append(below(message, index, mine));
  return box;
}

function below(message, index, mine) {
  const meta = element("div", "meta");
  const busy = running && index === messages.length - 1;
  if (busy) return meta;
  if (message.stopped) meta.append(element("span", "", gettext("stopped")));
  if (message.meta) meta.append(element("span", "", facts(message)));
  if (message.content) meta.append(action(gettext("Copy"), async (e) => {
    const button = e.currentTarget;
    await window.llmgwCopy(message.content);
    button.textContent = gettext("Copied");
    setTimeout(() => { button.textContent = gettext("Copy"); }, 1500);
  }));
  if (mine) meta.append(action(gettext("Edit"), () => edit(index)));
  if (!mine && index === messages.length - 1) meta.append(action(gettext("Answer again"), again));
  return meta;
}

function facts({ model: name, meta }) {
  const parts = [name];
  if (meta.completion != null) parts.push(interpolate(ngettext("%s token", "%s tokens", meta.completion), [figure(meta.completion)]));
  if (meta.first != null) parts.push(interpolate(gettext("first after %s s"), [figure(meta.first / 1000, 2)]));
  if (meta.whole != null) parts.push(interpolate(gettext("%s s in all"), [figure(meta.whole / 1000, 1)]));
  if (meta.completion > 1 && meta.whole - meta.first > 50) parts.push(interpolate(gettext("%s tokens/s"), [figure((meta.completion - 1) / ((meta.whole - meta.first) / 1000), 0)]));
  return parts.filter(Boolean).join(" · ");
}

function troubled({ status, code, sentence, after }) {
  const box = element("div", "trouble");
  box.setAttribute("role", "alert");
  box.append(element("strong", "", headline(status, code)));
  if (sentence) { const p = element("p", "", sentence); p.lang = "en"; box.append(p); }
  if (after) box.append(element("p", "small muted", interpolate(gettext("It may go again in %s s."), [after])));
  if (status === 401) { const link = element("a", "", gettext("Sign in again")); link.href = page.dataset.signIn; box.append(link); }
  return box;
}

function headline(status, code) {
  if (code === "offline") return gettext("The gateway cannot be reached.");
  if (code === "cut_short") return gettext("The answer broke off.");
  if (status === 401) return gettext("You are signed out.");
  if (status === 403) return gettext("This project may not use that model.");
  if (status === 404) return gettext("There is no such model.");
  if (status === 413) return gettext("The conversation is too long to be sent.");
  if (status === 429) return gettext("That is more than the limit allows.");
  if (status === 503) return gettext("The model does not answer now.");
  if (status === 400) return gettext("The model did not take that.");
  return gettext("The answer failed.");
}

// Asking

async function ask() {
  const words = text.value.trim();
  if (!words || running || !project.value) return;
  messages.push({ role: "user", content: words });
  text.value = "";
  grow();
  await answer();
}

function again() {
  if (running) return;
  if (messages.at(-1)?.role === "assistant") messages.pop();
  answer();
}

function edit(index) {
  if (running) return;
  text.value = messages[index].content;
  messages = messages.slice(0, index);
  keep();
  draw();
  grow();
  text.focus();
}

function body() {
  const history = messages.filter((m) => m.content && !m.hidden).map(({ role, content }) => ({ role, content }));
  const asked = { model: model.value, messages: system.value.trim() ? [{ role: "system", content: system.value.trim() }, ...history] : history };
  if (temperature.value !== "") asked.temperature = Number(temperature.value);
  if (most.value !== "") asked.max_tokens = Number(most.value);
  return asked;
}

async function answer() {
  const asked = body();
  const message = { role: "assistant", content: "", model: asked.model, meta: {} };
  messages.push(message);
  running = new AbortController();
  follow = true;
  busy(true);
  draw();
  bottom();
  said.textContent = gettext("The model is answering.");
  const place = turns.lastElementChild.querySelector(".body");
  const began = performance.now();
  let drawn = 0;
  try {
    for await (const chunk of chunks(asked, running.signal)) {
      if (chunk.usage) message.meta.completion = chunk.usage.completion_tokens;
      const delta = chunk.choices?.[0]?.delta?.content;
      if (!delta) continue;
      if (!message.content) { message.meta.first = performance.now() - began; place.replaceChildren(); }
      message.content += delta;
      drawn ||= requestAnimationFrame(() => { drawn = 0; render(place, message.content); if (follow) bottom(); });
    }
  } catch (error) {
    if (running.signal.aborted) message.stopped = true;
    else if (error instanceof Trouble) message.trouble = { status: error.status, code: error.code, sentence: error.sentence, after: error.after };
    else message.trouble = { status: 0, code: "offline", sentence: "", after: "" };
  }
  cancelAnimationFrame(drawn);
  message.meta.whole = performance.now() - began;
  running = null;
  busy(false);
  draw();
  if (follow) bottom();
  keep();
  said.textContent = message.trouble ? headline(message.trouble.status, message.trouble.code) : message.stopped ? gettext("stopped") : message.content;
  text.focus();
}

/** The chunks of an answer; a token that was refused is renewed once, before anything was said. */
async function* chunks(asked, signal) {
  try {
    yield* complete(page.dataset.api + "/chat/completions", await tokens.get(project.value), asked, signal);
  } catch (error) {
    if (!(error instanceof Trouble) || error.status !== 401 || error.code === "signed_out") throw error;
    tokens.forget();
    yield* complete(page.dataset.api + "/chat/completions", await tokens.get(project.value), asked, signal);
  }
}

async function models(wanted) {
  try {
    const answer = await fetch(page.dataset.api + "/models", { headers: { Authorization: "Bearer " + (await tokens.get(project.value)) } });
    if (!answer.ok) throw await trouble(answer);
    const { data } = await answer.json();
    const chat = data.filter((m) => !Array.isArray(m.kinds) || m.kinds.includes("chat"));
    const before = model.value || wanted;
    model.replaceChildren(...chat.map(({ id }) => { const o = element("option", "", id); o.value = id; return o; }));
    model.disabled = !chat.length;
    if (chat.some(({ id }) => id === (wanted || before))) model.value = wanted || before;
    if (!chat.length) model.append(element("option", "", gettext("No model is served")));
  } catch (error) {
    model.replaceChildren(element("option", "", gettext("Models unknown")));
    const found = error instanceof Trouble ? error : { status: 0, code: "offline", sentence: "" };
    if (!messages.length) turns.replaceChildren(troubled(found));
  }
}

// The page

function busy(on) {
  send.hidden = on;
  stop.hidden = !on;
  talk.setAttribute("aria-busy", String(on));
}

const bottom = () => { talk.scrollTop = talk.scrollHeight; };
const grow = () => { text.rows = Math.min(10, text.value.split("\n").length); };

form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
stop.addEventListener("click", () => running?.abort());
text.addEventListener("input", grow);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); ask(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) { event.preventDefault(); running.abort(); } });
talk.addEventListener("scroll", () => { follow = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60; });
$("fresh").addEventListener("click", () => { running?.abort(); messages = []; keep(); draw(); text.focus(); });
for (const input of [model, system, temperature, most]) input.addEventListener("change", keep);
project.addEventListener("change", () => { keep(); models(model.value); });

const wanted = recall();
draw();
bottom();
if (project.value) models(new URLSearchParams(location.search).get("model") || wanted);
