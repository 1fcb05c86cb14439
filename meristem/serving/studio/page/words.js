// Words of the interface in the chosen language; the dictionaries hold every word in English and Chinese.

import { RUNS } from "./dictionary_runs.js";
import { TRY } from "./dictionary_try.js";

const WORDS = { ...RUNS, ...TRY };
const STORED = "meristem.language";
let chosen = read(STORED) ?? (navigator.language?.toLowerCase().startsWith("zh") ? "zh" : "en");

export function read(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* a browser that keeps nothing still shows everything */ }
}

export const language = () => chosen;

export function choose(name) {
  chosen = name;
  keep(STORED, name);
}

export function t(word, parts = {}) {
  const found = WORDS[word];
  if (!found) return word;
  return found[chosen === "zh" ? 1 : 0].replace(/\{(\w+)\}/g, (_, name) => parts[name] ?? "");
}
