// All runs of the folder, as they stand now.

import { sparkline } from "./chart.js";
import { make, number, own, replace } from "./elements.js";
import { get, repeat } from "./server.js";
import { t } from "./words.js";

export const MARKS = { training: "●", finished: "✓", stopped: "❚❚", failed: "✕", new: "○" };

export function state(run) {
  return make("span", { class: `state ${run.state}` }, make("i", { "aria-hidden": "true" }, MARKS[run.state]), t(run.state));
}

export function place(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}

export function ago(seconds) {
  const gone = Math.max(0, Math.round(Date.now() / 1000 - seconds));
  if (gone < 90) return t("ago_s", { n: gone });
  if (gone < 5400) return t("ago_m", { n: Math.round(gone / 60) });
  if (gone < 48 * 3600) return t("ago_h", { n: Math.round(gone / 3600) });
  return t("ago_d", { n: Math.round(gone / 86400) });
}

export function progress(run) {
  const told = run.total
    ? t("step_of", { step: number(run.step), total: number(run.total) })
    : t("step_only", { step: number(run.step) });
  const share = run.total ? Math.min(1, run.step / run.total) : 0;
  return make("span", { class: "progress" },
    make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: { width: `${share * 100}%` } })), told);
}

export function command(text) {
  const button = make("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = t("copied");
    } catch {
      getSelection().selectAllChildren(code);
    }
  } }, t("copy"));
  const code = make("code", {}, text);
  return make("div", { class: "command" }, code, button);
}

function empty(folder) {
  return make("section", { class: "empty" },
    make("h1", {}, t("no_runs")),
    make("p", {}, t("no_runs_in", { folder: folder ?? "" })),
    command("meristem pretrain"),
    make("p", { class: "soft" }, t("no_runs_what")),
    make("p", {}, t("no_runs_more")),
    command("meristem pretrain gpt2-mini my-texts/"));
}

export async function show({ place: view, signal }) {
  const ticked = new Set();
  const list = make("ul", { class: "runs" });
  const button = make("a", { class: "button", hidden: true });
  const head = make("div", { class: "head" }, make("h1", {}, t("runs")), button);
  const rows = new Map();
  let before = "";

  function tick(name, on) {
    ticked[on ? "add" : "delete"](name);
    button.hidden = ticked.size < 2;
    button.textContent = t("compare_ticked", { n: ticked.size });
    button.href = `#/compare?${[...ticked].map((one) => `run=${encodeURIComponent(one)}`).join("&")}`;
  }

  function row(run) {
    const box = make("input", { type: "checkbox", "aria-label": `${t("tick")}: ${run.name}`, title: t("tick"),
      onchange: () => tick(run.name, box.checked) });
    const link = make("a", { href: `#/run/${place(run.name)}` });
    const made = { item: make("li", {}, box, link), link, told: "", age: null };
    return made;
  }

  function update(made, run) {
    const told = JSON.stringify(run);
    if (told !== made.told) {
      made.told = told;
      made.age = make("span", { class: "age" });
      replace(made.link,
        make("span", { class: "name" }, own(run.name), make("small", {}, [run.family, run.learns].filter(Boolean).join(" · "))),
        state(run), progress(run),
        make("span", { class: "loss" }, make("small", {}, t("loss")), number(run.loss)),
        sparkline(run.spark), made.age);
    }
    made.age.textContent = ago(run.changed);
  }

  await repeat(async () => {
    const found = await get("/studio/runs", {}, signal);
    const names = found.runs.map((run) => run.name).join("\n");
    for (const run of found.runs) {
      if (!rows.has(run.name)) rows.set(run.name, row(run));
      update(rows.get(run.name), run);
    }
    if (names === before && view.firstChild) return;
    before = names;
    if (!found.runs.length) {
      replace(view, empty(found.folder));
      return;
    }
    const newest = [...found.runs].sort((a, b) => (b.state === "training") - (a.state === "training") || b.changed - a.changed);
    list.replaceChildren(...newest.map((run) => rows.get(run.name).item));
    if (list.parentNode !== view) replace(view, head, list);
  }, 2, signal);
}
