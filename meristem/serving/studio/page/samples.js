// What a run writes, from checkpoint to checkpoint.

import { labelled, make, number, own, percent, replace } from "./elements.js";
import { post } from "./server.js";
import { t } from "./words.js";

const DEFAULTS = { mlm: "The [MASK] walked to the [MASK].", other: "The" };

export function samples(run, signal) {
  const section = make("section", { class: "samples" }, make("h2", {}, t("samples")));
  if (run.samples.length) section.append(pairs(run.samples));
  const writes = run.kind !== "tasks";
  if (!writes) {
    section.hidden = !run.samples.length;
    return section;
  }
  const masks = /mlm|rtd|bert|electra/.test(`${run.learns} ${run.family}`);
  const prompt = make("input", { type: "text", value: run.examples.text ?? DEFAULTS[masks ? "mlm" : "other"] });
  const button = make("button", { type: "submit" }, t("show_samples"));
  const out = make("div", { "aria-live": "polite" });
  let [saved, wanted, busy] = [run.saved, false, false];

  async function ask() {
    if (busy || saved === null || !prompt.value) return;
    busy = true;
    try {
      const found = await post("/studio/samples", { model: run.name, prompt: prompt.value }, signal);
      replace(out, steps(found.samples));
    } catch (error) {
      if (!signal.aborted) replace(out, make("p", { class: "wrong" }, error.message));
    } finally {
      busy = false;
    }
  }

  const form = make("form", { class: "line", onsubmit: (event) => {
    event.preventDefault();
    wanted = true;
    ask();
  } }, labelled(t("prompt"), prompt, { class: "field grows" }), button);
  section.append(make("p", { class: "soft" }, t("samples_what")), form, out);
  section.update = (now) => {
    section.hidden = now.saved === null && !now.samples.length;
    if (now.saved === saved) return;
    saved = now.saved;
    if (wanted) ask();  // a new checkpoint: one more sample
  };
  section.hidden = run.saved === null && !run.samples.length;
  return section;
}

function steps(found) {
  return make("ol", { class: "steps" }, found.map((one) => make("li", {},
    make("span", { class: "soft" }, t("step_only", { step: number(one.step) })), said(one))));
}

function said(one) {
  if (one.notice) return make("span", { class: "soft" }, one.notice);
  if (!one.masks) return own(one.text || t("nothing_written"));
  const words = one.text.split("[MASK]");
  return make("bdi", { dir: "auto" }, words.map((word, at) => [word, at < one.masks.length ? best(one.masks[at]) : null]));
}

function best(candidates) {
  const others = candidates.map((one) => `${one.token} ${percent(one.score)}`).join(", ");
  return make("mark", { title: others }, candidates[0].token, make("small", {}, ` ${percent(candidates[0].score)}`));
}

function pairs(found) {
  return make("div", { class: "pairs" }, found.map((pair) => make("dl", {},
    ["prompt", "before", "after"].map((word) => [make("dt", {}, t(word)), make("dd", {}, own(pair[word] ?? ""))]))));
}
