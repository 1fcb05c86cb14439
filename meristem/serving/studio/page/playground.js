// A run, opened to be tried: a form for each thing it can do, and its answer.

import { abilitiesOf } from "./abilities.js";
import { labelled, make, number, picturePicker, replace, select } from "./elements.js";
import { place as address } from "./parts.js";
import { get, post } from "./server.js";
import { unknownRun } from "./unknown.js";
import { t } from "./words.js";

// The runs that have weights, one of them chosen; `opened` gets it once the server has loaded it.
export async function chooser({ view, name, signal, tab, opened }) {
  const { runs } = await get("/studio/runs", {}, signal);
  const there = runs.filter((run) => run.saved !== null);
  if (!there.length) {
    replace(view, make("h1", {}, t(tab)), make("p", { class: "soft" }, t("no_weights")), make("p", {}, make("a", { href: "#/runs" }, t("back"))));
    return;
  }
  if (name && !runs.some((run) => run.name === name)) {
    await unknownRun(view, name, tab, signal);
    return;
  }
  const chosen = there.find((run) => run.name === name)?.name ?? there.sort((a, b) => b.changed - a.changed)[0].name;
  const about = make("p", { class: "soft", role: "status" }, t("opening", { name: chosen }));
  const body = make("div", { class: "try" });
  const picked = select(there.map((run) => [run.name, `${run.name} (${run.learns})`]), chosen, (value) => {
    location.hash = `#/${tab}/${address(value)}`;
  });
  replace(view, make("h1", {}, t(tab)), labelled(t("run"), picked, { class: "field pick" }), about, body);
  try {
    const run = await post("/studio/open", { model: chosen }, signal);
    const told = await get("/studio/run", { name: chosen }, signal);
    about.textContent = t("at_step", { family: run.family, parameters: number(run.parameters), step: number(run.step) });
    opened(body, { ...run, examples: told.examples });
  } catch (error) {
    if (!signal.aborted) replace(about, make("span", { class: "wrong" }, error.message));
  }
}

export async function show({ place: view, name, query, signal }) {
  await chooser({ view, name, signal, tab: "playground", opened: (body, run) => {
    const abilities = abilitiesOf(run);
    const able = Object.keys(abilities);
    if (!able.length) {
      replace(body, make("p", {}, t("nothing_to_try")));
      return;
    }
    const panel = make("div", { class: "panel", role: "tabpanel", id: "panel" });
    const tabs = make("div", { class: "tabs", role: "tablist", "aria-label": t("playground") });
    const turn = (ability) => {
      for (const tab of tabs.children) {
        const on = tab.dataset.ability === ability;
        tab.setAttribute("aria-selected", on);
        tab.tabIndex = on ? 0 : -1;
      }
      panel.setAttribute("aria-labelledby", `tab-${ability}`);
      panel.className = `panel ${ability}`;
      replace(panel, form(run, ability, abilities[ability], signal));
      if (query.get("do") !== ability) {
        query.set("do", ability);
        history.replaceState(null, "", `#/playground/${address(run.name)}?${query}`);
      }
    };
    tabs.append(...able.map((ability) => make("button", { type: "button", role: "tab", id: `tab-${ability}`, "aria-controls": "panel", data: { ability }, onclick: () => turn(ability) }, named(t(`can_${ability}`), ability))));
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const at = [...tabs.children].indexOf(document.activeElement);
      const next = tabs.children[(at + step + able.length) % able.length];
      next.focus();
      turn(next.dataset.ability);
    });
    replace(body, tabs, panel);
    turn(able.includes(query.get("do")) ? query.get("do") : able[0]);
  } });
}

// One ability's fields, its buttons and the place of its answer; a second question ends the first.
function form(run, ability, { fields, answer, view, again }, signal) {
  if (view) return view(run, signal);
  const wanted = Object.entries(fields).filter(([, field]) => !field.only || field.only(run));
  const controls = Object.fromEntries(wanted.map(([name, field]) => [name, control(name, field, run)]));
  const out = make("div", { class: "answer", "aria-live": "polite" }, make("p", { class: "soft" }, t("answer_here")));
  const button = make("button", { type: "submit" }, named(t(`do_${ability}`), ability));
  const repeated = again ? make("button", { type: "button", onclick: () => {
    controls.seed.value = newSeed();
    made.requestSubmit(button);
  } }, t("again_seed")) : null;
  let asking = null;

  async function submit(event) {
    event.preventDefault();
    if (asking) {
      asking.abort();
      return;
    }
    asking = new AbortController();
    const both = AbortSignal.any([asking.signal, signal]);
    button.textContent = t("stop");
    if (repeated) repeated.disabled = true;
    out.setAttribute("aria-busy", "true");
    replace(out, make("p", { class: "soft" }, t("working")));
    try {
      const given = {};
      for (const [name, one] of Object.entries(controls)) given[name] = await value(one.input ?? one);
      await answer({ run, given, out, signal: both });
    } catch (error) {
      if (!both.aborted) replace(out, make("p", { class: "wrong" }, error.message));
      else if (!signal.aborted) out.querySelector(".soft:only-child")?.remove();
    } finally {
      asking = null;
      button.textContent = named(t(`do_${ability}`), ability);
      if (repeated) repeated.disabled = false;
      out.setAttribute("aria-busy", "false");
    }
  }

  const hint = Object.values(fields).find((field) => field.hint)?.hint;
  const made = make("form", { class: "ask", onsubmit: submit },
    Object.entries(controls).map(([name, one]) => one.element ?? labelled(t(fields[name].title ?? name), one, { class: fields[name].small ? "field small" : "field" })),
    hint ? make("p", { class: "soft" }, t(hint)) : null, make("div", { class: "buttons" }, button, repeated));
  made.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) made.requestSubmit(button);
  });
  return [made, out];
}

// The verb of an ability; one without words in the dictionaries has its route's name.
function named(verb, ability) {
  return /^(can|do)_/.test(verb) ? ability : verb;
}

// A seed nobody chose: a fresh one each time.
function newSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0] % 1_000_000;
}

function control(name, field, run) {
  if (field.file) return picturePicker(t("choose_picture"));
  const example = run.examples[field.like ?? name];
  const fits = example && (field.masked || field.until || !example.includes("[MASK]"));
  const start = (fits ? example : field.start) ?? "";
  if (field.number) return make("input", { type: "number", required: true, value: field.fresh ? newSeed() : field.start, min: field.min, max: field.max, step: field.step ?? 1 });
  const made = make("textarea", { rows: field.rows ?? 3, spellcheck: "false", required: !field.free, dir: "auto" });
  made.value = field.until ? start.split(field.until)[0].trimEnd() : start;
  return made;
}

export function dataOf(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

async function value(one) {
  if (one.type === "file") return dataOf(one.files[0]);
  return one.type === "number" ? Number(one.value) : one.value;
}
