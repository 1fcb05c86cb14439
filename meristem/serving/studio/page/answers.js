// Answers as people read them. Probabilities are bars with numbers; places in a text are marked and named.

import { make, number, own, percent, table } from "./elements.js";
import { copyButton } from "./parts.js";
import { readable } from "./tokens.js";
import { t } from "./words.js";

export function bars(rows) {
  const most = Math.max(...rows.map(([, score]) => score), 1e-9);
  const long = rows.some(([name]) => name.length > 28);
  return make("ul", { class: long ? "bars long" : "bars" }, rows.map(([name, score], at) => make("li", { class: at ? "" : "first" },
    make("span", { class: "what" }, own(name)),
    make("span", { class: "track", "aria-hidden": "true" }, make("i", { style: { width: `${(100 * score) / Math.max(1, most)}%` } })),
    make("span", { class: "share" }, percent(score)))));
}

export function filled(masks) {
  return masks.map((mask, at) => make("section", { class: "mask" },
    masks.length > 1 ? make("h3", {}, t("mask_number", { n: at + 1 })) : null,
    bars(mask.candidates.map((one) => [one.token, one.score])),
    at || masks.length > 1 ? null : sentence(mask.candidates[0].sequence)));
}

// A label or a number, ranked labels, choices, or what each layer of a probe says.
export function classified(found) {
  const list = Array.isArray(found) ? found : [found];
  if (list[0]?.layers) return list.map((word) => make("section", {}, make("h3", {}, own(word.word)), layers(word.layers)));
  if (list[0]?.layer !== undefined) return layers(list);
  const bounded = list.every((one) => one.score >= 0 && one.score <= 1);
  if (!bounded) return make("div", { class: "sentence" }, make("p", {}, own(list[0].label), " ", make("b", {}, number(list[0].score))));
  return bars(list.map((one) => [one.choice ?? one.label, one.score]));
}

function layers(list) {
  return table([t("layer"), t("value"), t("probability")], list.map((one) => [one.layer, own(one.label), percent(one.score)]));
}

// Stretches of a text, each marked with its kind; a text that names itself when it is read aloud.
export function marked(text, stretches) {
  const parts = [];
  let end = 0;
  for (const one of [...stretches].sort((a, b) => a.start - b.start)) {
    if (one.start < end) continue;
    parts.push(text.slice(end, one.start));
    const kind = one.kind ?? "";
    parts.push(make("mark", { class: `c${hue(kind)}`, title: percent(one.score) }, text.slice(one.start, one.end),
      kind ? make("small", {}, ` ${kind}`) : null));
    end = one.end;
  }
  parts.push(text.slice(end));
  return make("p", { class: "passage", dir: "auto" }, parts);
}

function hue(kind) {
  let sum = 0;
  for (const letter of kind) sum = (sum * 31 + letter.codePointAt(0)) % 7919;
  return sum % 8;
}

// The server counts characters, this language halves of them: places beyond the first plane are moved.
function moved(text, stretches) {
  const letters = [...text];
  const at = [0];
  for (const letter of letters) at.push(at.at(-1) + letter.length);
  return stretches.map((one) => ({ ...one, start: at[one.start] ?? text.length, end: at[one.end] ?? text.length }));
}

export function tagged(found, { text }) {
  const list = Array.isArray(found) ? found : found.slots;
  const named = list.map((one) => ({ ...one, kind: one.entity_group ?? one.entity }));
  const intent = found.intent ? bars([[found.intent, found.score]]) : null;
  if (!named.length) return [intent, make("p", { class: "soft" }, t("no_entities"))];
  return [intent, marked(text, moved(text, named)),
    table([t("text"), t("kind"), t("probability")], named.map((one) => [own(one.word), one.kind, percent(one.score)]))];
}

export function answered(list, { passage }) {
  const [best] = list;
  if (!best.answer) return [make("div", { class: "sentence" }, make("p", {}, t("no_answer"), ` (${percent(best.score)})`)), marked(passage, [])];
  return [make("div", { class: "sentence" }, make("p", {}, own(best.answer), " ", make("small", {}, percent(best.score))), copyButton(() => best.answer)),
    marked(passage, moved(passage, [best])),
    list.length > 1 ? bars(list.map((one) => [one.answer || t("no_answer"), one.score])) : null];
}

export function said(found) {
  const [text] = Object.values(Array.isArray(found) ? found[0] : found);
  return sentence(text);
}

// A text that a model wrote, and a button that copies it.
export function sentence(text) {
  const shown = text ? own(text) : t("nothing_written");
  return make("div", { class: "sentence" }, make("p", {}, shown), text ? copyButton(() => text, shown) : null);
}

// Each token where it stands in the text: the likelier it was replaced, the stronger its colour; a line says so too.
const SUSPECT = 0.5;

export function detected(tokens, text) {
  const places = moved(text, tokens);
  const parts = [];
  let end = 0;
  for (const one of places) {
    if (one.start < end) continue;
    parts.push(text.slice(end, one.start));
    const suspect = one.probability >= SUSPECT;
    parts.push(make(suspect ? "mark" : "span", { class: suspect ? "token suspect" : "token bad", tabindex: "0", title: percent(one.probability),
      "aria-label": `${text.slice(one.start, one.end)} ${percent(one.probability)}`, style: { "--share": one.probability.toFixed(3) } },
    text.slice(one.start, one.end), suspect ? make("small", {}, ` ${percent(one.probability)}`) : null));
    end = one.end;
  }
  parts.push(text.slice(end));
  const most = [...places].sort((a, b) => b.probability - a.probability).slice(0, 5);
  return [make("p", { class: "soft" }, t("detect_told", { n: tokens.filter((one) => one.probability >= SUSPECT).length, all: tokens.length })),
    make("p", { class: "passage detected", dir: "auto" }, parts), bars(most.map((one) => [text.slice(one.start, one.end), one.probability]))];
}

// The surer the model was of a token, the stronger its colour; the number stands under it.
export function scored(found) {
  const perplexity = Math.exp(-found.logprob / Math.max(1, found.tokens));
  const told = { logprob: number(found.logprob), tokens: number(found.tokens), perplexity: number(perplexity) };
  return [
    make("p", { class: "soft" }, t("score_told", told)),
    make("p", { class: "scored", dir: "auto" }, found.per_token.map(([token, value]) => {
      const share = value === null ? 0 : Math.exp(value);
      return make("span", { class: "token", style: { "--share": share.toFixed(3) } }, own(readable(token)), make("small", {}, value === null ? "–" : percent(share)));
    })),
  ];
}

export function likeness(texts, vectors) {
  const size = (vector) => Math.hypot(...vector);
  const cosine = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0) / (size(a) * size(b) || 1);
  const short = (text) => own(text.length > 40 ? `${text.slice(0, 39)}…` : text);
  return table(["", ...texts.map((_, at) => String(at + 1))], texts.map((text, row) => [
    make("span", {}, `${row + 1} `, short(text)),
    ...vectors.map((other) => number(cosine(vectors[row], other), 3))]), { class: "numbers" });
}
