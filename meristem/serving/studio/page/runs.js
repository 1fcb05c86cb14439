// All runs of the folder as they stand now: searched, filtered, sorted, a page at a time.

import { sparkline } from "./chart.js";
import { labelled, make, number, own, replace, select } from "./elements.js";
import { metric, value } from "./names.js";
import { ago, command, place, progress, state } from "./parts.js";
import { get, repeat } from "./server.js";
import { t } from "./words.js";

const SIZE = 25;
const STATES = ["training", "finished", "stopped", "failed", "new"];
const KINDS = ["objectives", "tasks", "rewards"];
const SORTS = {
  recent: (a, b) => (b.state === "training") - (a.state === "training") || b.changed - a.changed,
  oldest: (a, b) => a.changed - b.changed,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  measure: byMeasure,
  steps: (a, b) => b.step - a.step,
};

// Runs with the same measure beside each other, the best of them first; those that have none come last.
function byMeasure(a, b) {
  if (!a.measure || !b.measure) return Boolean(b.measure) - Boolean(a.measure);
  if (a.measure.name !== b.measure.name) return a.measure.name.localeCompare(b.measure.name);
  return (a.measure.lower ? 1 : -1) * (a.measure.value - b.measure.value);
}

export function matches(run, words) {
  const text = [run.name, run.family, run.learns, run.data, t(run.state), t(`kind_${run.kind}`), run.measure ? metric(run.measure.name) : ""].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
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

// The address holds what is looked for, so that it can be shared and gone back to.
function wanted(query) {
  const one = (name, known, otherwise) => (known.includes(query.get(name)) ? query.get(name) : otherwise);
  return { text: query.get("search") ?? "", state: one("state", STATES, ""), kind: one("kind", KINDS, ""),
    sort: one("sort", Object.keys(SORTS), "recent"), page: Math.max(1, Math.floor(Number(query.get("page"))) || 1) };
}

function address(looks) {
  const query = new URLSearchParams();
  const usual = { text: "", state: "", kind: "", sort: "recent", page: 1 };
  for (const [name, usually] of Object.entries(usual)) if (looks[name] !== usually) query.set(name === "text" ? "search" : name, looks[name]);
  return query.size ? `#/runs?${query}` : "#/runs";
}

export async function show({ place: view, query, signal }) {
  const ticked = new Set();
  const looks = wanted(query);
  const rows = new Map();
  const parts = { list: make("ul", { class: "runs" }), shown: make("p", { class: "soft", role: "status" }), pages: make("nav", { class: "pages", "aria-label": t("pages") }) };
  const button = make("a", { class: "button", hidden: true });
  const clear = make("button", { type: "button", hidden: true, onclick: () => untick() }, t("untick"));
  const head = make("div", { class: "head" }, make("h1", {}, t("runs")), make("div", { class: "push" }, clear, button));
  const bar = controls(looks, (pushed) => turned(pushed));
  let [runs, limit, seen, offset] = [[], null, "", 0];

  function turned(pushed) {
    history[pushed ? "pushState" : "replaceState"](null, "", address(looks));
    paint();
    if (pushed) window.scrollTo(0, 0);
  }

  function tick(name, on) {
    ticked[on ? "add" : "delete"](name);
    button.hidden = ticked.size < 2;
    clear.hidden = !ticked.size;
    button.textContent = t("compare_ticked", { n: ticked.size });
    button.href = `#/compare?${[...ticked].map((one) => `run=${encodeURIComponent(one)}`).join("&")}`;
  }

  function untick() {
    for (const name of [...ticked]) tick(name, false);
    for (const { box } of rows.values()) box.checked = false;
  }

  function row(run) {
    if (!rows.has(run.name)) {
      const box = make("input", { type: "checkbox", "aria-label": `${t("tick")}: ${run.name}`, title: t("tick"), onchange: () => tick(run.name, box.checked) });
      const link = make("a", { href: `#/run/${place(run.name)}` });
      rows.set(run.name, { item: make("li", {}, box, link), box, link, told: "", age: null });
    }
    const made = rows.get(run.name);
    const told = JSON.stringify(run);
    if (told !== made.told) {
      made.told = told;
      made.age = make("span", { class: "age" });
      replace(made.link,
        make("span", { class: "name" }, own(run.name), make("small", {}, [run.family, run.learns].filter(Boolean).join(" · "))),
        state(run), progress(run), measured(run.measure), sparkline(run.spark), made.age);
    }
    made.age.textContent = ago(run.changed, Date.now() / 1000 + offset);
    return made.item;
  }

  function paint() {
    const words = looks.text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = runs.filter((run) => (!looks.state || run.state === looks.state) && (!looks.kind || run.kind === looks.kind) && matches(run, words)).sort(SORTS[looks.sort]);
    const last = Math.max(1, Math.ceil(found.length / SIZE));
    looks.page = Math.min(looks.page, last);
    const from = (looks.page - 1) * SIZE;
    const items = found.slice(from, from + SIZE).map(row);
    // Rows that stay where they are keep the focus.
    if (items.length !== parts.list.children.length || items.some((item, at) => parts.list.children[at] !== item)) parts.list.replaceChildren(...items);
    const told = { from: found.length ? from + 1 : 0, to: from + items.length, n: found.length, all: runs.length };
    replace(parts.shown, found.length === runs.length ? t("runs_shown", told) : found.length ? t("runs_matching", told) : t("none_match"),
      found.length ? null : [" ", make("button", { type: "button", onclick: () => { bar.reset(); turned(true); } }, t("clear_filters"))],
      limit ? ` ${t("runs_limit", { n: limit })}` : null);
    bar.element.hidden = parts.shown.hidden = runs.length < 2;
    replace(parts.pages, last > 1 ? pager(looks.page, last, (to) => {
      looks.page = to;
      turned(true);
    }) : null);
  }

  await repeat(async () => {
    const found = await get("/studio/runs", { seen }, signal);
    offset = found.now - Date.now() / 1000;
    seen = found.seen;
    if (found.runs) [runs, limit] = [found.runs, found.limit];
    if (!runs.length) {
      if (found.runs || !view.querySelector(".empty")) replace(view, empty(found.folder));
      return;
    }
    paint();
    if (parts.list.parentNode !== view) replace(view, head, bar.element, parts.shown, parts.list, parts.pages);
  }, 2, signal);
}

function measured(one) {
  if (!one) return make("span", { class: "measured" }, make("small", {}, "–"));
  return make("span", { class: "measured", title: one.name },
    make("small", {}, metric(one.name), " ", make("i", {}, t(one.split))), value(one.name, one.value));
}

function controls(looks, turned) {
  const search = make("input", { type: "search", value: looks.text, placeholder: t("search_what"), autocomplete: "off", spellcheck: "false", oninput: () => {
    Object.assign(looks, { text: search.value, page: 1 });
    turned(false);
  } });
  const pick = (key, options) => select(options, looks[key], (chosen) => {
    Object.assign(looks, { [key]: chosen, page: 1 });
    turned(false);
  });
  const picks = {
    state: pick("state", [["", t("every")], ...STATES.map((one) => [one, t(one)])]),
    kind: pick("kind", [["", t("every")], ...KINDS.map((one) => [one, t(`kind_${one}`)])]),
    sort: pick("sort", Object.keys(SORTS).map((one) => [one, t(`sort_${one}`)])),
  };
  const reset = () => {
    Object.assign(looks, { text: "", state: "", kind: "", page: 1 });
    search.value = picks.state.value = picks.kind.value = "";
    search.focus();
  };
  const element = make("form", { class: "controls", role: "search", onsubmit: (event) => event.preventDefault() },
    labelled(t("search"), search, { class: "field grows" }), labelled(t("filter_state"), picks.state),
    labelled(t("filter_kind"), picks.kind), labelled(t("sort"), picks.sort));
  return { element, reset };
}

// First, last, and those around the page that is shown.
function pager(now, last, go) {
  const near = [...new Set([1, now - 1, now, now + 1, last])].filter((one) => one >= 1 && one <= last).sort((a, b) => a - b);
  const step = (word, to) => make("button", { type: "button", disabled: to < 1 || to > last, onclick: () => go(to) }, t(word));
  return [step("previous", now - 1),
    near.map((one, at) => [at && one - near[at - 1] > 1 ? make("span", { "aria-hidden": "true" }, "…") : null,
      make("button", { type: "button", "aria-current": one === now ? "page" : null, "aria-label": t("page_number", { n: one }), onclick: () => go(one) }, number(one))]),
    step("next", now + 1)];
}
