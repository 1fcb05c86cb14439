// One run: its curves while it trains, what it writes, its recipe, and what to do next.

import { Chart } from "./chart.js";
import { labelled, make, number, own, replace, select, table } from "./elements.js";
import { markdown } from "./markdown.js";
import { metric, value, withoutSource } from "./names.js";
import { command, duration, place, progress, state } from "./parts.js";
import { samples } from "./samples.js";
import { counted } from "./scales.js";
import { get, repeat } from "./server.js";
import { unknownRun } from "./unknown.js";
import { keep, read, t } from "./words.js";

export const AXES = ["step", "tokens", "flops", "minutes"];
const FIRST = ["loss", "perplexity", "reward", "accuracy"];
const LAST = ["rate", "gradient_norm", "tokens_per_second", "mfu", "memory"];

export async function show({ place: view, name, signal }) {
  const parts = { head: make("div", {}), skipped: make("p", { class: "soft" }), curves: make("section", { class: "charts" }), below: make("div", {}) };
  const charts = new Map();
  const looks = { axis: "step", weight: Number(read("meristem.smooth") ?? 0), logX: false, logY: false, part: null };
  let [seen, told, asked, along, measured] = ["", "", 0, [], ""];

  const drawn = () => ({ weight: looks.weight, logX: looks.logX, logY: looks.logY, part: looks.part, axis: t(`axis_${looks.axis}`), whole: looks.axis === "step" || looks.axis === "tokens",
    shared: counted(along, looks.logX) });  // one range for all charts of a run, so that they can be read below each other

  function settle() {
    for (const chart of charts.values()) {
      Object.assign(chart, drawn());
      chart.paint();
    }
  }

  async function curves() {
    const mine = ++asked;
    const [begin, end] = looks.part ?? [];
    const found = await get("/studio/curves", { name, axis: looks.axis, begin, end, seen }, signal);
    if (mine !== asked) return;
    if (found.series && looks.part === null) seen = found.seen;
    if (found.series) paint(found.series);
    if (found.skipped) parts.skipped.textContent = found.skipped.length ? t("skipped", { n: found.skipped.length, steps: some(found.skipped) }) : "";
  }

  function paint(series) {
    const groups = grouped(series, measured);
    along = series.map((one) => one.x);
    if (!groups.size) {
      replace(parts.curves, make("p", { class: "soft" }, t("no_curves")));
      return;
    }
    for (const [title, lines] of groups) {
      if (!charts.has(title)) {
        charts.set(title, new Chart({ title: metric(title), metric: title, zoomed: (part) => {
          looks.part = part;
          seen = "";
          settle();
          curves().catch(() => {});
        } }));
      }
      const chart = charts.get(title);
      Object.assign(chart, drawn());
      if (!chart.element.parentNode) {
        if (!charts.size || parts.curves.firstChild?.tagName === "P") replace(parts.curves);
        parts.curves.append(chart.element);
      }
      chart.set(lines);
    }
  }

  const bar = controls(looks, settle, () => {
    seen = "";
    looks.part = null;
    curves().catch(() => {});
  });
  await repeat(async () => {
    const found = await get("/studio/run", { name }, signal);
    measured = found.measure?.name ?? "";
    const now = JSON.stringify({ ...found, changed: 0, log: 0 });
    if (now !== told) {
      told = now;
      if (!parts.head.isConnected) replace(view, parts.head, bar, parts.skipped, parts.curves, parts.below);
      replace(parts.head, head(found));
      if (!parts.below.firstChild) replace(parts.below, ...below(found, signal));
      for (const section of parts.below.children) section.update?.(found);
    }
    await curves();
  }, 2, signal, (error) => {
    if (error.status !== 404) return false;
    unknownRun(view, name, "run", signal).catch(() => {});
    return true;
  });
}

function some(steps) {
  return steps.slice(-6).map((step) => number(step)).join(", ");
}

// Training and validation of one number share a chart; the measure that the run is judged by comes first.
function grouped(series, measured) {
  const groups = new Map();
  const kinds = (name) => groups.get(name)?.map((line) => line.kind) ?? [];
  for (const one of series) {
    const short = withoutSource(one.name);
    const name = kinds(short).includes(one.kind) ? one.name : short;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push({ name: t(one.kind), kind: one.kind, x: one.x, y: one.y, mark: one.kind === "train" ? 0 : 1 });
  }
  const rank = (title) => (title === measured ? -200 : FIRST.includes(title) ? FIRST.indexOf(title) - 100 : LAST.includes(title) ? 100 + LAST.indexOf(title) : 0);
  return new Map([...groups].sort(([a], [b]) => rank(a) - rank(b)));
}

function controls(looks, settle, again) {
  const slider = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: looks.weight, oninput: () => {
    looks.weight = Number(slider.value);
    keep("meristem.smooth", slider.value);
    settle();
  } });
  const box = (word, key) => {
    const made = make("input", { type: "checkbox", onchange: () => {
      looks[key] = made.checked;
      settle();
    } });
    return make("label", { class: "tick" }, made, t(word));
  };
  const axes = AXES.map((one) => [one, t(`axis_${one}`)]);
  return make("div", { class: "controls" },
    labelled(t("axis"), select(axes, looks.axis, (value) => {
      looks.axis = value;
      again();
    })),
    labelled(t("smooth"), slider), make("div", { class: "pair" }, box("log_x", "logX"), box("log_y", "logY")));
}

function head(run) {
  const why = run.why ? t(`why_${run.why}`, { ...run, step: number(run.step), saved: number(run.saved) }) : "";
  return [
    make("p", {}, make("a", { href: "#/runs" }, t("back"))),
    make("div", { class: "head" }, make("h1", {}, own(run.name)), state(run),
      make("span", { class: "soft" }, [run.family, run.learns].filter(Boolean).join(" · ")),
      run.saved === null ? null : make("a", { class: "button", href: `#/playground/${place(run.name)}` }, t("try"))),
    make("p", { class: "under" }, progress(run), why ? make("span", { dir: "auto" }, why) : null),
    facts(run),
    run.commands.length ? make("details", { open: run.state !== "finished" }, make("summary", {}, t("go_on")), run.commands.map(command)) : null,
  ];
}

// What is known of a run, in one line of small tables; what is not known is left out.
function facts(run) {
  const { measure } = run;
  const rows = [
    measure ? ["measure", t("name_split", { name: metric(measure.name), split: t(measure.split) }), value(measure.name, measure.value)] : null,
    run.parameters ? ["parameters", "", number(run.parameters)] : null,
    run.data ? ["data", sized(run.data_size), own(run.data)] : null,
    run.tokens ? ["tokens", "", number(run.tokens)] : null,
    run.seconds ? ["elapsed", "", duration(run.seconds)] : null,
    run.seconds_left !== null ? ["left", "", t("about", { time: duration(run.seconds_left) })] : null,
    run.tokens_per_second ? ["speed", "", number(Math.round(run.tokens_per_second))] : null,
  ];
  return make("dl", { class: "facts" }, rows.filter(Boolean).map(([word, more, one]) => make("div", { class: word },
    make("dt", {}, t(`fact_${word}`)), make("dd", {}, one, more ? make("small", {}, more) : null))));
}

// "8,000 train, 200 test samples", as the log has it, in the language of the page.
function sized(text) {
  const unit = /(tokens|samples|prompts)$/.exec(text)?.[1];
  if (!unit) return text;
  const parts = [...text.matchAll(/([\d,]+) (train|validation|test)/g)].map(([, n, split]) => t(`size_${split}`, { n }));
  return t(`size_${unit}`, { n: parts.length ? parts.join(t("comma")) : text.slice(0, -unit.length).trim() });
}

function below(run, signal) {
  return [samples(run, signal), ends(run), card(run), text("recipe", run, (one) => one.recipe), text("log", run, (one) => one.log.join("\n"))];
}

function card(run) {
  const page = make("div", { class: "card" });
  const section = make("details", {}, make("summary", {}, t("card")), page);
  let told = null;
  section.update = (now) => {
    section.hidden = !now.card;
    if (now.card === told) return;
    told = now.card;
    replace(page, markdown(now.card));
  };
  section.update(run);
  return section;
}

// What it ended with, and where its report is.
function ends(run) {
  const section = make("section", { class: "ended-with" });
  section.update = (now) => {
    const splits = ["validation", "test"].map((split) => now.finished?.[split] ?? {});
    const names = [...new Set(splits.flatMap(Object.keys))];
    const rows = names.map((name) => [make("span", { title: name }, metric(name)), ...splits.map((one) => number(one[name]))]);
    const link = now.report ? make("a", { class: "button", href: `#/${now.report.kind}/${place(now.name)}` }, t("report")) : null;
    replace(section, rows.length || link ? make("div", { class: "head" }, make("h2", {}, t("numbers")), link) : null,
      rows.length ? table([t("measure"), t("evaluation"), t("test")], rows, { class: "numbers" }) : null);
  };
  section.update(run);
  return section;
}

function text(word, run, of) {
  const pre = make("pre", { tabindex: "0" });
  const section = make("details", {}, make("summary", {}, t(word)), pre);
  section.update = (now) => {
    pre.textContent = of(now);
    section.hidden = !of(now);
  };
  section.update(run);
  return section;
}
