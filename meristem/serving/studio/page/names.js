// Names as people read them: of metrics, and of runs without the part that all of them share.

import { number } from "./elements.js";
import { t } from "./words.js";

function known(prefix, word) {
  const found = t(`${prefix}_${word}`);
  return found === `${prefix}_${word}` ? null : found;
}

const plain = (word) => word.replaceAll("_", " ");

// "mlm.top1" → "Masked tokens (MLM): top-1 accuracy"; the name in metrics.jsonl stays as the tooltip.
export function metric(name) {
  if (!/^[\w.]+$/.test(name)) return name;  // a name that somebody else gave
  const parts = name.split(".");
  if (parts.length === 1) {
    const found = known("metric", name);
    if (found) return found;
    const term = known("term", name);
    return term ? `${t("metric_loss")}: ${term}` : capital(plain(name));
  }
  const [first, ...rest] = parts;
  const last = rest.map((one) => known("metric", one) ?? plain(one)).join(" ");
  const small = last.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  return `${known("term", first) ?? capital(plain(first))}: ${small}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function value(name, one) {
  return name === "memory" && Number.isFinite(one) ? bytes(one) : number(one);
}

export function bytes(size) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (size >= unit) return `${Number((size / unit).toPrecision(3))} ${name}`;
  }
  return `${size} B`;
}

// Names without what all of them begin or end with, cut at - _ / . or a space; none becomes empty.
export function withoutCommonPart(names) {
  if (names.length < 2) return names;
  const parts = names.map((name) => name.split(/(?<=[-_/. ])|(?=[-_/. ])/));
  const shortest = Math.min(...parts.map((one) => one.length));
  const same = (place) => parts.every((one) => place(one) === place(parts[0]));
  let [before, after] = [0, 0];
  while (before < shortest - 1 && same((one) => one[before])) before++;
  while (before + after < shortest - 1 && same((one) => one[one.length - 1 - after])) after++;
  const found = parts.map((one) => one.slice(before, one.length - after).join("").replace(/^[-_/. ]+|[-_/. ]+$/g, ""));
  return found.every(Boolean) && new Set(found).size === new Set(names).size ? found : names;
}
