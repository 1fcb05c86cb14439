// Names as people read them: of metrics, and of runs without the part that all of them share.

import { number } from "./elements.js";
import { t } from "./words.js";

function known(prefix, word) {
  const found = t(`${prefix}_${word}`);
  return found === `${prefix}_${word}` ? null : found;
}

const plain = (word) => word.replaceAll("_", " ");

// "clm.clm.top1" → "clm.top1", "mlm+nsp.mlm" → "mlm": validation of a mix names the source of each term, training does not.
export function withoutSource(name) {
  const [source, ...rest] = name.split(".");
  return source.split("+").includes(rest[0]) ? rest.join(".") : name;
}

// "mlm.top1" → "Masked tokens (MLM): top-1 accuracy"; the name in metrics.jsonl stays as the tooltip.
export function metric(given) {
  if (!/^[\w.+-]+(: \w+)?$/.test(given)) return known("metric", given.replaceAll(" ", "_")) ?? given;  // a name that somebody else gave
  const name = withoutSource(given.replace(": ", "."));
  const parts = name.split(".");
  if (parts.length === 1) {
    const found = known("metric", name.replaceAll("-", ""));
    if (found) return found;
    const term = known("term", name);
    const layer = /^layer_(\d+)_accuracy$/.exec(name);
    if (layer) return t("layer_accuracy", { layer: layer[1] });
    return term ? t("part_of", { whole: t("metric_loss"), part: term }) : capital(plain(name));
  }
  const [first, ...rest] = parts;
  const last = rest.map((one) => known("metric", one) ?? plain(one)).join(" ");
  const small = last.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
  const whole = first.split("+").map((one) => known("term", one) ?? known("metric", one) ?? capital(plain(one))).join(" + ");
  return t("part_of", { whole, part: small });
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
