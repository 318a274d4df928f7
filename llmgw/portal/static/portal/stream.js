// One chat completion over server-sent events, and the short-lived token that pays for it.

/** Tokens from the portal, renewed half a minute before they end. */
export class Tokens {
  #held = new Map();

  constructor(address, csrf) { this.address = address; this.csrf = csrf; }

  forget() { this.#held.clear(); }

  async get(project) {
    const held = this.#held.get(project);
    if (held && held.until > Date.now() + 30_000) return held.token;
    const answer = await fetch(this.address, { method: "POST", headers: { "X-CSRFToken": this.csrf }, body: new URLSearchParams({ project }) });
    if (answer.redirected) throw new Trouble(401, "signed_out", "");
    if (!answer.ok) throw await trouble(answer);
    const { token, expires_at: until } = await answer.json();
    this.#held.set(project, { token, until: until * 1000 });
    return token;
  }
}

/** An answer that was refused or broke off: the status, the code for programs, the sentence for people. */
export class Trouble extends Error {
  constructor(status, code, sentence, after = "") { super(sentence); Object.assign(this, { status, code, sentence, after }); }
}

export async function trouble(answer) {
  let found = {};
  try { found = (await answer.json()).error ?? {}; } catch { /* not JSON: a proxy or another page answered */ }
  return new Trouble(answer.status, found.code ?? "", found.message ?? "", answer.headers.get("retry-after") ?? "");
}

/** Yields the parsed chunks of a streamed completion; throws `Trouble` for a refusal or an error within the stream. */
export async function* complete(address, token, body, signal) {
  const answer = await fetch(address, {
    method: "POST",
    headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!answer.ok) throw await trouble(answer);
  if (!(answer.headers.get("content-type") ?? "").startsWith("text/event-stream")) throw new Trouble(answer.status, "not_a_stream", "");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    held += value;
    const events = held.split(/\r?\n\r?\n/);
    held = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).replace(/^ /, "")).join("\n");
      if (!data) continue;
      if (data === "[DONE]") { ended = true; continue; }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Trouble(200, chunk.error.code ?? "", chunk.error.message ?? String(chunk.error));
      yield chunk;
    }
  }
  if (!ended) throw new Trouble(200, "cut_short", "");
}
