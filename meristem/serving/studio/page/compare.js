// Several runs on one axis, what differs in their recipes, and the numbers they ended with.

import { Chart, COLOURS } from "./chart.js";
import { labelled, make, number, own, replace, select, table } from "./elements.js";
import { metric, withoutCommonPart } from "./names.js";
import { duration, place, state } from "./parts.js";
import { AXES } from "./run.js";
import { matches } from "./runs.js";
import { get, repeat } from "./server.js";
import { keep, read, t } from "./words.js";

const MOST = COLOURS;
const FIRST = 4;
const SEARCHED = 8;  // runs from which on they can be searched

// The newest runs that learn the same: a single one has nothing to be compared with, unless there is nothing else.
function recent(runs) {
  const known = runs.filter((run) => run.measure).sort((a, b) => b.changed - a.changed);
  const groups = (key) => Object.values(Object.groupBy(known, key));
  const several = (key) => groups(key).find((group) => group.length > 1);
  const chosen = several((run) => `${run.kind} ${run.learns}`) ?? several((run) => run.kind) ?? known;
  return chosen.slice(0, FIRST).map((run) => run.name);
}

export async function show({ place: view, query, signal }) {
  const looks = { axis: "step", curve: "train loss", weight: Number(read("meristem.smooth") ?? 0), part: null };
  const ticked = new Set(query.getAll("run"));
  const chart = new Chart({ height: 360, captioned: false, zoomed: (part) => {
    looks.part = part;
    if (part) fetched.clear();
    curves().catch(() => {});
  } });
  const fetched = new Map();
  const parts = { list: chooser(ticked, () => {
    history.replaceState(null, "", `#/compare?${[...ticked].map((one) => `run=${encodeURIComponent(one)}`).join("&")}`);
    told = "";
    refresh().catch(() => {});
  }), controls: make("div", { class: "controls" }), chart: make("div", {}), tables: make("div", {}) };
  let [named, told, listed] = ["", "", ""];
  const chosen = () => [...ticked].slice(0, MOST);

  function controls(curvesThere) {
    const slider = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: looks.weight, oninput: () => {
      looks.weight = Number(slider.value);
      keep("meristem.smooth", slider.value);
      paint();
    } });
    const box = (word, key) => {
      const made = make("input", { type: "checkbox", checked: chart[key], onchange: () => {
        chart[key] = made.checked;
        paint();
      } });
      return make("label", { class: "tick" }, made, t(word));
    };
    const turn = (key) => (value) => {
      looks[key] = value;
      looks.part = chart.part = null;
      fetched.clear();
      curves().catch(() => {});
    };
    replace(parts.controls,
      labelled(t("curve"), select(curvesThere.map((one) => [one, title(one)]), looks.curve, turn("curve"))),
      labelled(t("axis"), select(AXES.map((one) => [one, t(`axis_${one}`)]), looks.axis, turn("axis"))),
      labelled(t("smooth"), slider), make("div", { class: "pair" }, box("log_x", "logX"), box("log_y", "logY")));
  }

  async function curves() {
    const names = chosen();
    const [begin, end] = looks.part ?? [];
    await Promise.all(names.map(async (name) => {
      const seen = fetched.get(name)?.seen;
      const series = looks.curve.split(" ").slice(1).join(" ");
      const found = await get("/studio/curves", { name, axis: looks.axis, begin, end, seen, series, points: 600 }, signal);
      if (found.series) fetched.set(name, found);
    }));
    const there = [...new Set(names.flatMap((name) => (fetched.get(name)?.names ?? []).map((one) => one.join(" "))))];
    if (there.length && !there.includes(looks.curve)) {
      [looks.curve] = there;
      fetched.clear();
      await curves();
      return;
    }
    if (named !== there.join()) {
      named = there.join();
      controls(there);
    }
    paint();
  }

  function paint() {
    const [kind, ...rest] = looks.curve.split(" ");
    const labels = withoutCommonPart(chosen());
    const lines = chosen().map((full, mark) => {
      const one = fetched.get(full)?.series.find((line) => line.kind === kind && line.name === rest.join(" "));
      return one ? { name: labels[mark], full, x: one.x, y: one.y, mark } : null;
    });
    Object.assign(chart, { weight: looks.weight, axis: t(`axis_${looks.axis}`), title: title(looks.curve), metric: rest.join(" "), part: looks.part,
      whole: looks.axis === "step" || looks.axis === "tokens" });
    chart.set(lines.filter(Boolean));
  }

  async function refresh() {
    const { runs } = await get("/studio/runs", {}, signal);
    const now = JSON.stringify(runs.map((run) => [run.name, run.state]));
    if (now !== listed) {
      listed = now;
      if (!ticked.size) for (const name of recent(runs)) ticked.add(name);
      for (const name of ticked) if (!runs.some((run) => run.name === name)) ticked.delete(name);
      parts.list.set(runs);
    }
    if (!parts.list.element.isConnected) replace(view, make("h1", {}, t("compare")), parts.list.element, parts.controls, parts.chart, parts.tables);
    if (!ticked.size) {
      replace(parts.chart, make("p", { class: "soft" }, t("choose_two")));
      replace(parts.controls);
      replace(parts.tables);
      named = "";
      return;
    }
    if (!chart.element.isConnected) replace(parts.chart, chart.element);
    const found = await get("/studio/compare", { name: chosen() }, signal);
    if (JSON.stringify(found) !== told) {
      told = JSON.stringify(found);
      replace(parts.tables, ...tables(found));
    }
    await curves();
  }

  await repeat(refresh, 3, signal);
}

// "train loss" → "Loss (training)"
function title(curve) {
  const [kind, ...rest] = curve.split(" ");
  return t("of_split", { name: metric(rest.join(" ")), split: t(kind) });
}

// The runs there are, those that are chosen first; many can be searched.
function chooser(ticked, turned) {
  const boxes = make("div", { class: "boxes" });
  const note = make("p", { class: "soft", role: "status" });
  const search = make("input", { type: "search", placeholder: t("search_what"), "aria-label": t("search"), autocomplete: "off", spellcheck: "false", oninput: () => paint() });
  const element = make("fieldset", { class: "ticks" }, make("legend", {}, t("choose_runs")), search, boxes, note);
  let runs = [];

  function paint() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    replace(boxes, runs.filter((run) => ticked.has(run.name) || matches(run, words)).map((run) => {
      const box = make("input", { type: "checkbox", checked: ticked.has(run.name), onchange: () => {
        ticked[box.checked ? "add" : "delete"](run.name);
        note.textContent = ticked.size > MOST ? t("most_compared", { n: MOST }) : "";
        turned();
      } });
      return make("label", { class: "tick" }, box, own(run.name), state(run));
    }));
  }

  return { element, set: (found) => {
    runs = [...found].sort((a, b) => ticked.has(b.name) - ticked.has(a.name) || b.changed - a.changed);
    search.hidden = runs.length < SEARCHED;
    paint();
  } };
}

function tables({ names, differences, numbers }) {
  const labels = withoutCommonPart(names);
  const links = names.map((name, at) => make("a", { class: `c${at % COLOURS} line-name`, href: `#/run/${place(name)}`, title: name }, own(labels[at])));
  const head = (word) => [t(word), ...links.map((link) => link.cloneNode(true))];
  const shown = (row, at) => (row.name === "minutes" && row.values[at] !== null ? duration(60 * row.values[at]) : number(row.values[at]));
  const best = (row, at) => row.best.includes(at) ? make("b", { title: t("best") }, `★ ${shown(row, at)}`) : shown(row, at);
  return [
    make("h2", {}, t("final_numbers")),
    table(head("measure"), numbers.map((row) => [measure(row.name), ...row.values.map((_, at) => best(row, at))]), { class: "numbers" }),
    make("p", { class: "soft" }, t("final_what")),
    make("h2", {}, t("differences")),
    differences.length
      ? table(head("setting"), differences.map((row) => [make("code", {}, row.setting), ...row.values.map((one) => (one === null ? "–" : own(one)))]), { class: "settings" })
      : make("p", { class: "soft" }, t("no_differences")),
  ];
}

// "validation loss" → "Loss (validation)"; what a run has spent belongs to no split.
function measure(name) {
  const [split, ...rest] = name.split(" ");
  return make("span", { title: name }, rest.length ? t("of_split", { name: metric(rest.join(" ")), split: t(split) }) : metric(name));
}
