// What was written beside what it was written from: a word pointed at shows where the model looked.

import { sentence } from "./answers.js";
import { make, number, own } from "./elements.js";
import { mean } from "./maps.js";
import { ask } from "./server.js";
import { t } from "./words.js";

const OUTWARD = ["cross", "align", "image"];

async function looked(run, body, signal) {
  const found = await ask("/attention", { model: run.name, ...body }, signal);
  const kind = OUTWARD.find((name) => found.kinds[name]);
  return kind ? found.kinds[kind] : null;
}

// Words that can be pointed at or tabbed to; `turn` gets the number of the one that is.
function words(queries, turn) {
  const line = make("p", { class: "passage aligned", dir: "auto" }, queries.map((word, at) => {
    const on = (event) => {
      for (const one of line.children) one.classList.toggle("on", one === event.currentTarget);
      turn(at);
    };
    return make("span", { class: "token", tabindex: "0", onpointerenter: on, onfocus: on }, own(word));
  }));
  return line;
}

export async function translated({ run, given, signal }, target) {
  const seen = await looked(run, { text: given.text, target }, signal);
  if (!seen) return make("p", {});
  const weights = mean(seen.weights);
  const source = make("p", { class: "passage aligned", dir: "auto" },
    seen.keys.map((word) => make("span", { class: "token" }, own(word), make("small", {}))));
  const turn = (at) => {
    const most = Math.max(...weights[at]);
    [...source.children].forEach((word, key) => {
      const share = weights[at][key];
      word.style.setProperty("--share", (share / most).toFixed(3));
      word.classList.toggle("on", share === most);
      word.lastChild.textContent = number(share, 2);
    });
  };
  const line = words(seen.queries, turn);
  turn(0);
  line.firstChild?.classList.add("on");
  return make("section", { class: "alignment" }, make("p", { class: "soft" }, t("alignment")), line, source);
}

export async function caption({ run, given, signal }, text) {
  const picture = make("div", { class: "picture" }, make("img", { src: given.image, alt: text ?? "" }));
  const said = sentence(text);
  const seen = text && run.can.includes("attention") ? await looked(run, { image: given.image, target: text }, signal) : null;
  if (!seen) return [said, picture];
  const weights = mean(seen.weights);
  const side = Math.round(Math.sqrt(seen.keys.length));
  const veil = make("div", { class: "veil", style: { "--side": side } }, seen.keys.map(() => make("i", {})));
  picture.append(veil);
  const turn = (at) => {
    const most = Math.max(...weights[at]);
    [...veil.children].forEach((patch, key) => patch.style.setProperty("--share", (weights[at][key] / most).toFixed(3)));
  };
  return [said, make("p", { class: "soft" }, t("looked")), words(seen.queries, turn), picture];
}
