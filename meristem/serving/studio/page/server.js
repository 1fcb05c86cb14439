// What is asked of the server, and what it says when something is wrong.

export class Wrong extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
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
  const answer = await fetch(`${path}?${query}`, { signal });
  return (await said(answer)).json();
}

function posted(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

export async function post(path, body, signal) {
  return (await said(await posted(path, body, signal))).json();
}

// A question to a run; one that has been put away meanwhile is opened again.
export async function ask(path, body, signal) {
  try {
    return await post(path, body, signal);
  } catch (error) {
    if (error.status !== 404) throw error;
    await post("/studio/open", { model: body.model }, signal);
    return post(path, body, signal);
  }
}

// Server-sent events, each handed over as it comes.
export async function stream(path, body, each, signal) {
  const answer = await said(await posted(path, { ...body, stream: true }, signal));
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

// Something that is asked again and again while its view is shown and the page is looked at.
export function repeat(call, seconds, signal) {
  let timer;
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await call();
        trouble("");
      } catch (error) {
        if (!signal.aborted) trouble(error.message);
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
