// Where a model looks: every head as a small map, one of them large, and lines from a token to what it looks at.

import { labelled, make, own, percent, picturePicker, replace, select } from "./elements.js";
import { inkOf, mean, paint, rollout, rolls } from "./maps.js";
import { chooser, dataOf } from "./playground.js";
import { ask } from "./server.js";
import { pulled, ROW } from "./strings.js";
import { t } from "./words.js";

const VIEWS = ["heads", "mean", "rollout"];

export async function show({ place: view, name, signal }) {
  await chooser({ view, name, signal, tab: "attention", opened: (body, run) => {
    if (!run.can.includes("attention")) {
      replace(body, make("p", {}, t("nothing_to_try")));
      return;
    }
    opened(body, run, signal);
  } });
}

const FIELDS = ["text", "text_b", "question", "passage"];

function opened(body, run, signal) {
  const given = FIELDS.filter((name) => name === "text" || run.examples[name]).filter((name) => name !== "text" || !run.examples.question);
  const reads = run.tasks.includes("span") ? ["question", "passage"] : given;
  const pictured = run.can.includes("caption");
  const textual = !pictured || run.can.includes("fill");  // a model of texts and pictures reads either
  const controls = Object.fromEntries(reads.map((name) => {
    const made = make("textarea", { rows: 2, dir: "auto", required: true });
    made.value = (run.examples[name] ?? "The gardener watered the old tree.").replaceAll("[MASK]", "it");
    return [name, made];
  }));
  const file = picturePicker(t("choose_picture"));
  const out = make("div", { class: "looked" });

  let again = new AbortController();
  signal.addEventListener("abort", () => again.abort());

  async function submit(event) {
    event.preventDefault();
    again.abort();
    again = new AbortController();
    const told = Object.fromEntries(Object.entries(controls).map(([name, one]) => [name, one.value]));
    const { text, text_b, ...parts } = told;
    const [picture] = file.input.files;
    const asked = picture ? { image: await dataOf(picture) } : { text: text ?? "", ...(text_b ? { text_b } : {}), parts };
    try {
      seen(out, await ask("/attention", { model: run.name, ...asked }, signal), again);
    } catch (error) {
      if (!signal.aborted) replace(out, make("p", { class: "wrong" }, error.message));
    }
  }

  const form = make("form", { class: "ask row", onsubmit: submit },
    textual ? Object.entries(controls).map(([name, one]) => labelled(t(name), one)) : null, pictured ? file.element : null,
    make("button", { type: "submit" }, t("look")));
  replace(body, form, out);
  file.input.required = !textual;
  if (textual) form.requestSubmit();
}

function seen(out, found, { signal }) {
  const names = Object.keys(found.kinds);
  const looks = { kind: names[0], view: "heads" };
  const grid = make("div", { class: "heads" });
  const large = make("div", { class: "large" });
  const bar = make("div", { class: "controls" });

  function turn() {
    const seen = found.kinds[looks.kind];
    const views = VIEWS.filter((one) => one !== "rollout" || (rolls(looks.kind) && seen.queries.length <= seen.keys.length));
    if (!views.includes(looks.view)) looks.view = "heads";
    replace(bar,
      labelled(t("kind"), select(names.map((one) => [one, t(`attention_${one}`)]), looks.kind, (value) => {
        looks.kind = value;
        turn();
      })),
      labelled(t("view"), select(views.map((one) => [one, t(`view_${one}`)]), looks.view, (value) => {
        looks.view = value;
        turn();
      })));
    replace(grid);
    if (looks.view === "heads") {
      heads(grid, seen, (layer, head) => enlarge(large, seen, seen.weights[layer][head], t("layer_head", { layer: layer + 1, head: head + 1 })));
      enlarge(large, seen, seen.weights.at(-1)[0], t("layer_head", { layer: seen.weights.length, head: 1 }));
    } else {
      enlarge(large, seen, looks.view === "mean" ? mean(seen.weights) : rollout(seen.weights), t(`view_${looks.view}`));
    }
  }

  replace(out, (found.notices ?? []).map((one) => make("p", { class: "soft" }, one)),
    found.target ? make("div", { class: "sentence" }, make("p", {}, own(found.target))) : null,
    bar, make("p", { class: "soft" }, t("attention_what")), make("div", { class: "maps" }, grid, large));
  turn();
  window.addEventListener("theme", turn, { signal });  // maps are painted in the ink of the theme
}

// Layers down, heads across; arrow keys move between them, Enter enlarges one.
function heads(grid, seen, chosen) {
  const many = seen.weights[0].length;
  grid.style.setProperty("--heads", many);
  const buttons = seen.weights.flatMap((layer, row) => layer.map((map, column) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const title = t("layer_head", { layer: row + 1, head: column + 1 });
    const button = make("button", { type: "button", class: "map", "aria-label": title, title, tabindex: row || column ? "-1" : "0",
      onclick: () => {
        for (const one of buttons) one.setAttribute("aria-pressed", one === button);
        chosen(row, column);
      } }, canvas, make("small", {}, `${row + 1}·${column + 1}`));
    queueMicrotask(() => paint(canvas, map, inkOf(grid)));
    return button;
  }));
  grid.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -many, ArrowDown: many }[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!step || at < 0 || !buttons[at + step]) return;
    for (const one of buttons) one.tabIndex = -1;
    buttons[at + step].tabIndex = 0;
    buttons[at + step].focus();
    event.preventDefault();
  };
  grid.append(...buttons);
  buttons.at(-many).setAttribute("aria-pressed", "true");
}

function enlarge(place, seen, map, title) {
  // As high as the tokens beside it, row by row; narrower than they are long where there is little room.
  const size = { width: "100%", height: `${ROW * seen.queries.length}px` };
  const room = { "--wide": `${ROW * seen.keys.length}px` };
  const canvas = make("canvas", { role: "img", "aria-label": title, style: size });
  const told = make("p", { class: "readout", role: "status" }, t("attention_point"));
  const { element, turn } = pulled(seen, map, (row) => {
    const others = [...map[row].keys()].sort((a, b) => map[row][b] - map[row][a]).slice(0, 3);
    told.textContent = t("looks_at", { token: seen.queries[row],
      others: others.map((key) => `“${seen.keys[key]}” ${percent(map[row][key])}`).join(t("comma")) });
  });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    turn(Math.min(map.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * map.length))));
  });
  replace(place, make("h2", {}, title), told, make("div", { class: "both" }, element, make("figure", { class: "heat", style: room }, canvas)));
  paint(canvas, map, inkOf(place));
}
