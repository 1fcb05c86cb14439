// Several runs on one axis, what differs in their recipes, and the numbers they ended with.

import { Chart } from "./chart.js";
import { labelled, make, number, own, replace, select, table } from "./elements.js";
import { AXES } from "./run.js";
import { place, state } from "./runs.js";
import { get, repeat } from "./server.js";
import { keep, read, t } from "./words.js";

const MOST = 12;

export async function show({ place: view, query, signal }) {
  const looks = { axis: "step", curve: "train loss", weight: Number(read("meristem.smooth") ?? 0), part: null };
  const ticked = new Set(query.getAll("run"));
  const chart = new Chart({ height: 340, zoomed: (part) => {
    looks.part = part;
    if (part) fetched.clear();
    curves().catch(() => {});
  } });
  const fetched = new Map();
  const parts = { list: make("fieldset", { class: "ticks" }), controls: make("div", { class: "controls" }), chart: make("div", {}), tables: make("div", {}) };
  let [named, told, listed] = ["", "", ""];

  function pick(names) {
    parts.list.replaceChildren(make("legend", {}, t("choose_runs")), ...names.map((run) => {
      const box = make("input", { type: "checkbox", checked: ticked.has(run.name), onchange: () => {
        ticked[box.checked ? "add" : "delete"](run.name);
        const address = [...ticked].map((one) => `run=${encodeURIComponent(one)}`).join("&");
        history.replaceState(null, "", `#/compare?${address}`);
        told = "";
        refresh().catch(() => {});
      } });
      return make("label", { class: "tick" }, box, own(run.name), state(run));
    }));
  }

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
    const titles = curvesThere.map((one) => [one, one.replace(/^(\w+) /, (_, kind) => `${t(kind)}: `)]);
    replace(parts.controls,
      labelled(t("curve"), select(titles, looks.curve, turn("curve"))),
      labelled(t("axis"), select(AXES.map((one) => [one, t(`axis_${one}`)]), looks.axis, turn("axis"))),
      labelled(t("smooth"), slider), box("log_x", "logX"), box("log_y", "logY"));
  }

  async function curves() {
    const names = [...ticked].slice(0, MOST);
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
    const lines = [...ticked].slice(0, MOST).map((name, mark) => {
      const one = fetched.get(name)?.series.find((line) => line.kind === kind && line.name === rest.join(" "));
      return one ? { name, x: one.x, y: one.y, mark } : null;
    });
    Object.assign(chart, { weight: looks.weight, axis: t(`axis_${looks.axis}`), title: looks.curve, part: looks.part });
    chart.set(lines.filter(Boolean));
  }

  async function refresh() {
    const { runs } = await get("/studio/runs", {}, signal);
    const now = JSON.stringify(runs.map((run) => [run.name, run.state]));
    if (now !== listed) {
      listed = now;
      if (!ticked.size) for (const run of runs.filter((one) => one.loss !== null).slice(0, 2)) ticked.add(run.name);
      for (const name of ticked) if (!runs.some((run) => run.name === name)) ticked.delete(name);
      pick(runs);
    }
    if (!ticked.size) {
      replace(parts.chart, make("p", { class: "soft" }, t("choose_two")));
      replace(parts.tables);
      return;
    }
    if (!chart.element.isConnected) replace(parts.chart, chart.element);
    const found = await get("/studio/compare", { name: [...ticked].slice(0, MOST) }, signal);
    if (JSON.stringify(found) !== told) {
      told = JSON.stringify(found);
      replace(parts.tables, ...tables(found));
    }
    await curves();
  }

  replace(view, make("h1", {}, t("compare")), parts.list, parts.controls, parts.chart, parts.tables);
  await repeat(refresh, 3, signal);
}

function tables({ names, differences, numbers }) {
  const links = names.map((name, at) => make("a", { class: `c${at % 8} line-name`, href: `#/run/${place(name)}` }, own(name)));
  const head = (word) => [t(word), ...links.map((link) => link.cloneNode(true))];
  const best = (row, at) => row.best.includes(at) ? make("b", { title: t("best") }, `★ ${number(row.values[at])}`) : number(row.values[at]);
  return [
    make("h2", {}, t("final_numbers")),
    table(head("measure"), numbers.map((row) => [row.name, ...row.values.map((_, at) => best(row, at))]), { class: "numbers" }),
    make("p", { class: "soft" }, t("final_what")),
    make("h2", {}, t("differences")),
    differences.length
      ? table(head("setting"), differences.map((row) => [make("code", {}, row.setting), ...row.values.map((one) => (one === null ? "–" : own(one)))]), { class: "settings" })
      : make("p", { class: "soft" }, t("no_differences")),
  ];
}
