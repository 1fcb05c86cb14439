// What a run may be able to do: what is asked for, where it is asked, and how the answer looks.

import * as answers from "./answers.js";
import { caption, translated } from "./aligned.js";
import { chat } from "./chat.js";
import { make, number, replace } from "./elements.js";
import { copyButton } from "./parts.js";
import { written } from "./written.js";
import { ask, stream } from "./server.js";
import { t } from "./words.js";

const TEXT = { rows: 3, start: "Ada walked to the old harbour." };
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

const WHOLE = ["masked", "generator"];  // ways of writing that fill in a whole text, and so are not streamed
const reads = (run) => run.ways[0] === "source";

async function asked(route, { run, given, out, signal }, shown, more = {}) {
  const found = await ask(route, { model: run.name, ...given, ...more }, signal);
  replace(out, shown(found.answer ?? found.answers, given));
  return found;
}

async function generate({ run, given, out, signal }) {
  const { top_p, ...rest } = given;
  const body = { model: run.name, ...rest, ...(top_p < 1 ? { top_p } : {}), top: 5 };
  const turns = reads(run);  // the prompt is not gone on from, but turned into another text
  const shown = written(turns ? "" : given.prompt);
  replace(out, shown.element);
  if (WHOLE.includes(run.ways[0])) {
    const found = await ask("/generate", { ...body, top: 0 }, signal);
    shown.add(found.texts[0]);
  } else {
    await stream("/generate", body, (news) => news.done || shown.add(news), signal);
  }
  shown.end();
  const told = { seed: given.seed, temperature: number(given.temperature), top_p: number(top_p) };
  out.append(make("p", { class: "under" }, make("span", { class: "soft", "data-seed": given.seed }, t("written_with", told)),
    copyButton(() => shown.text(), shown.element)));
  if (turns && shown.text() && run.can.includes("attention")) {
    out.append(await translated({ run, given: { text: given.prompt }, signal }, shown.text()));
  }
}

async function rewritten(route, all) {
  const found = await asked(route, all, answers.said);
  const answer = found.answer;
  const target = Object.values(answer)[0];
  if (route === "/translate" && target) all.out.append(await translated(all, target));
}

export const ABILITIES = {
  classify: {
    fields: { text: TEXT, text_b: { rows: 2, only: (run) => run.tasks.includes("pair"), start: "She went to the port." } },
    answer: ({ given, ...all }) => {
      const { text_b, ...rest } = given;
      return asked("/classify", { ...all, given: text_b ? given : rest }, answers.classified, { top: 8 });
    },
  },
  tag: { fields: { text: TEXT }, answer: (all) => asked("/tag", all, answers.tagged) },
  answer: {
    fields: { question: { rows: 1, start: "Who walked to the harbour?" }, passage: { ...TEXT, rows: 5 } },
    answer: (all) => asked("/answer", all, answers.answered, { top: 3 }),
  },
  choose: {
    fields: {
      text: { ...TEXT, start: "It rained, so" },
      question: { rows: 1, free: true },
      choices: { start: "she took an umbrella.\nthe sun shone." },
    },
    answer: ({ given, ...all }) => {
      const parts = { text: given.text, choices: lines(given.choices), ...(given.question ? { question: given.question } : {}) };
      return asked("/choose", { ...all, given: parts }, answers.classified, { top: 16 });
    },
  },
  translate: { fields: { text: TEXT }, answer: (all) => rewritten("/translate", all) },
  summarise: { fields: { text: { ...TEXT, rows: 6 } }, answer: (all) => rewritten("/summarise", all) },
  reply: { view: chat },
  caption: {
    fields: { image: { title: "picture", file: true } },
    answer: async (all) => {
      const { answer } = await ask("/caption", { model: all.run.name, image: all.given.image }, all.signal);
      replace(all.out, await caption(all, Object.values(answer)[0]));
    },
  },
  fill: {
    fields: { text: { ...TEXT, masked: true, start: "The [MASK] walked to the old [MASK].", hint: "mask_hint" } },
    answer: (all) => asked("/fill", all, answers.filled, { top: 6 }),
  },
  generate: {
    fields: {
      prompt: { like: "text", start: "The", until: "[MASK]", free: true },
      max_tokens: { title: "tokens", number: true, small: true, start: 40, min: 1, max: 2048 },
      temperature: { number: true, small: true, start: 1, min: 0, max: 10, step: 0.1 },
      top_p: { number: true, small: true, start: 1, min: 0.01, max: 1, step: 0.01 },
      seed: { number: true, small: true, fresh: true, min: 0, max: 1e9 },
    },
    again: true,
    answer: generate,
  },
  detect: {
    fields: { text: { ...TEXT, rows: 4, hint: "detect_what" } },
    answer: async (all) => {
      const found = await ask("/detect", { model: all.run.name, ...all.given }, all.signal);
      replace(all.out, answers.detected(found.answer?.tokens ?? found.tokens, all.given.text));
    },
  },
  score: {  // an encoder-decoder scores what it would write from a text
    fields: { text: TEXT, text_b: { title: "scored_text", rows: 2, only: reads, start: "Ada went home." } },
    answer: (all) => asked("/score", all, answers.scored),
  },
  embed: {
    fields: { text: { title: "lines", like: "", rows: 4, start: "The boat left the harbour.\nA ship sailed away.\nShe cooked soup." } },
    answer: async (all) => {
      const texts = lines(all.given.text);
      const { answers: vectors } = await ask("/embed", { model: all.run.name, text: texts }, all.signal);
      replace(all.out, answers.likeness(texts, vectors));
    },
  },
};
