// A conversation with a run that was trained on dialogues: the model sees all turns before each reply.

import { labelled, make, own, replace } from "./elements.js";
import { copyButton } from "./parts.js";
import { ask } from "./server.js";
import { t } from "./words.js";

export function chat(run, signal) {
  const turns = [];
  const log = make("ol", { class: "talk", role: "log", "aria-live": "polite", tabindex: "0" });
  const note = make("p", { class: "wrong", role: "alert", hidden: true });
  const message = make("textarea", { rows: 2, dir: "auto", required: true });
  const send = make("button", { type: "submit" }, t("do_reply"));
  const again = make("button", { type: "button", onclick: () => {
    asking?.abort();
    turns.length = 0;
    paint();
    message.focus();
  } }, t("chat_again"));
  const copied = copyButton(() => turns.map((text, at) => `${who(at)}: ${text}`).join("\n"), log);
  let asking = null;
  message.value = run.examples.text ?? "";

  const who = (at) => t(at % 2 ? "model" : "you");

  function paint(waiting = false) {
    replace(log, turns.length ? turns.map((text, at) => make("li", { class: at % 2 ? "theirs" : "mine" },
      make("small", {}, who(at)), make("p", {}, text ? own(text) : t("nothing_written")))) : make("li", { class: "soft" }, t("chat_empty")),
    waiting ? make("li", { class: "theirs soft" }, make("small", {}, t("model")), make("p", {}, t("working"))) : null);
    log.scrollTop = log.scrollHeight;
    again.disabled = copied.disabled = !turns.length;
  }

  async function submit(event) {
    event.preventDefault();
    if (asking) {
      asking.abort();
      return;
    }
    const text = message.value.trim();
    if (!text) return;
    asking = new AbortController();
    const both = AbortSignal.any([asking.signal, signal]);
    note.hidden = true;
    turns.push(text);
    message.value = "";
    send.textContent = t("stop");
    log.setAttribute("aria-busy", "true");
    paint(true);
    try {
      const { answer } = await ask("/reply", { model: run.name, turns: turns.map((one) => one || "…") }, both);
      turns.push(String(Object.values(Array.isArray(answer) ? answer[0] : answer)[0] ?? ""));
    } catch (error) {
      if (turns.at(-1) === text) turns.pop();  // what was not answered can be sent again
      message.value ||= text;
      note.hidden = both.aborted;
      note.textContent = both.aborted ? "" : error.message;
    } finally {
      asking = null;
      send.textContent = t("do_reply");
      log.setAttribute("aria-busy", "false");
      paint();
    }
  }

  const form = make("form", { class: "ask", onsubmit: submit }, labelled(t("message"), message),
    make("p", { class: "soft" }, t("chat_keys")), make("div", { class: "buttons" }, send, again, copied));
  message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit(send);
  });
  paint();
  return [make("div", { class: "conversation" }, log, note), form];
}
