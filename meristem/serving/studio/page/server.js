// What is asked of the server, and what it says when something is wrong.

import { language, t } from "./words.js";

export class Wrong extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Nobody answers at all: the server was stopped, or the network is gone.
export class Gone extends Error {}

let heard = new Date();

async function fetched(path, how) {
  try {
    const answer = await fetch(path, how);
    heard = new Date();
    gone(false);
    return answer;
  } catch (error) {
    if (how?.signal?.aborted || !(error instanceof TypeError)) throw error;
    gone(true);
    throw new Gone("the server does not answer");
  }
}

// Whether the server answers at all; the banner goes away by itself when it does again.
export async function alive() {
  try {
    await fetched("/health/live");
    return true;
  } catch {
    return false;
  }
}

function gone(yes) {
  const place = document.getElementById("gone");
  if (yes === !place.hidden) return;
  place.hidden = !yes;
  sayGone();
  if (!yes) window.dispatchEvent(new Event("back"));
}

// What the banner says, in the language of the page.
export function sayGone() {
  const time = heard.toLocaleTimeString(language() === "zh" ? "zh-CN" : "en-GB");
  document.getElementById("gone-text").textContent = document.getElementById("gone").hidden ? "" : t("gone", { time });
}

async function said(answer) {
  if (answer.ok) return answer;
  let message = `${answer.status} ${answer.statusText}`;
  try {
    message = (await answer.json()).error.message;
  } catch { /* an error without a sentence */ }
  throw new Wrong(answer.status, message);
}

export async function get(path, parts = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") query.append(name, one);
    }
  }
  const answer = await fetched(`${path}?${query}`, { signal });
  return (await said(answer)).json();
}

function posted(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return fetched(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

export async function post(path, body, signal) {
  return (await said(await posted(path, body, signal))).json();
}

// A question to a run; one that was unloaded meanwhile is loaded again.
async function asked(path, body, signal) {
  const answer = await posted(path, body, signal);
  if (answer.status !== 404) return said(answer);
  await post("/studio/open", { model: body.model }, signal);
  return said(await posted(path, body, signal));
}

export async function ask(path, body, signal) {
  return (await asked(path, body, signal)).json();
}

// Server-sent events, each handed over as it comes.
export async function stream(path, body, each, signal) {
  const answer = await asked(path, { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const data = JSON.parse(lines.find((line) => line.startsWith("data: ")).slice(6));
      if (lines.includes("event: error")) throw new Wrong(500, data.error.message);
      each(data);
    }
  }
}

// Something that is asked again and again while its view is shown and the page is looked at; it ends where
// `failed` says that there is no use in asking again.
export function repeat(call, seconds, signal, failed) {
  let timer;
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await call();
        trouble("");
      } catch (error) {
        if (signal.aborted) return;
        if (failed?.(error)) return;
        trouble(error instanceof Gone ? "" : error.message);
      }
    }
    if (!signal.aborted) timer = setTimeout(again, seconds * 1000);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  return again();
}

export function trouble(text) {
  const place = document.getElementById("trouble");
  place.textContent = text;
  place.hidden = !text;
}
