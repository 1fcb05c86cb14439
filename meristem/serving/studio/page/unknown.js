// Pages for addresses at which there is nothing: no such view, or no such run.

import { make, own, replace } from "./elements.js";
import { place as address, state } from "./parts.js";
import { get } from "./server.js";
import { t } from "./words.js";

const SUGGESTED = 6;

export function missing(view) {
  replace(view, make("section", { class: "empty" }, make("h1", {}, t("missing_view")), make("p", {}, t("missing_view_what")), home()));
}

export async function unknownRun(view, name, tab, signal) {
  document.title = `${t("unknown_run", { name })} · Meristem`;
  const suggestions = make("div", {});
  replace(view, make("section", { class: "empty" }, make("h1", { dir: "auto" }, t("unknown_run", { name })),
    make("p", {}, t("unknown_run_what")), suggestions, home()));
  const { runs } = await get("/studio/runs", {}, signal);
  const near = runs.map((run) => ({ run, far: distance(name.toLowerCase(), run.name.toLowerCase()) }))
    .filter(({ far, run }) => far <= Math.max(name.length, run.name.length) * 0.6)
    .sort((a, b) => a.far - b.far).slice(0, SUGGESTED);
  if (!near.length) return;
  replace(suggestions, make("p", {}, t("similar_names")), make("ul", { class: "plain" }, near.map(({ run }) =>
    make("li", {}, make("a", { href: `#/${tab}/${address(run.name)}` }, own(run.name)), " ", state(run)))));
}

function home() {
  return make("p", {}, make("a", { class: "button", href: "#/runs" }, t("back")));
}

// Edits from one name to another; a name inside the other is near. Names are cut, so that long ones stay quick.
function distance(a, b) {
  [a, b] = [a.slice(0, 80), b.slice(0, 80)];
  if (a && b && (a.includes(b) || b.includes(a))) return 1;
  let before = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let row = 1; row <= a.length; row++) {
    const now = [row];
    for (let at = 1; at <= b.length; at++) {
      now.push(Math.min(before[at] + 1, now[at - 1] + 1, before[at - 1] + (a[row - 1] === b[at - 1] ? 0 : 1)));
    }
    before = now;
  }
  return before[b.length];
}
