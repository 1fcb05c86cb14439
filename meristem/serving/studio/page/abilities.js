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

const SHOWN = { tags: answers.tagged, intent: answers.tagged, span: answers.answered };  // kind of output → how it looks
const TOP = { span: 3, choice: 16, tags: undefined, intent: undefined };

// A field of a task's form, as the server describes it: an image, or a text with as many lines as it usually has.
function control({ name, kind, required, example }) {
  if (kind === "image") return { title: "picture", file: true };
  const start = Array.isArray(example) ? example.join("\n") : example ?? "";
  return { rows: name === "question" ? 1 : name === "passage" ? 5 : 3, start, free: !required };
}

// A task's ability follows from its form: fields, and how its kind of output looks.
function task(route, { fields, output }) {
  const kinds = Object.fromEntries(fields.map((field) => [field.name, field.kind]));
  if (Object.values(kinds).includes("turns")) return { view: chat };
  const isList = (name) => ["choices", "texts", "words"].includes(kinds[name]);
  return {
    fields: Object.fromEntries(fields.map((field) => [field.name, control(field)])),
    answer: async ({ given, ...all }) => {
      const filled = Object.entries(given).filter(([, value]) => value);
      const parts = Object.fromEntries(filled.map(([name, value]) => [name, isList(name) ? lines(value) : value]));
      if (output !== "text") {
        const top = output in TOP ? TOP[output] : 8;
        await asked(`/${route}`, { ...all, given: parts }, SHOWN[output] ?? answers.classified, top ? { top } : {});
      } else if ("image" in parts) {
        const { answer } = await ask(`/${route}`, { model: all.run.name, ...parts }, all.signal);
        replace(all.out, await caption({ ...all, given: parts }, Object.values(answer)[0]));
      } else {
        const { answer } = await asked(`/${route}`, { ...all, given: parts }, answers.said);
        const text = Object.values(answer)[0];
        if (route === "translate" && text) all.out.append(await translated({ ...all, given: parts }, text));
      }
    },
  };
}

// What a run can do, by name: its tasks first.
export function abilitiesOf(run) {
  const tasks = Object.entries(run.forms).map(([route, form]) => [route, task(route, form)]);
  return Object.fromEntries([...tasks, ...Object.entries(ABILITIES).filter(([name]) => run.can.includes(name))]);
}

const ABILITIES = {
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
