// Tokens in two columns, and lines from the one that is pointed at to those it looks at: the thicker, the more.

import { draw, make, own } from "./elements.js";

export const ROW = 24;
const GAP = 110;

export function pulled(seen, map, told) {
  const lines = draw("svg", { width: GAP, height: ROW * Math.max(seen.queries.length, seen.keys.length), "aria-hidden": "true" });
  const tokens = (words, properties) => words.map((word, at) => make("li", properties(at), own(word)));
  const right = make("ol", { class: "tokens" }, tokens(seen.keys, () => ({})));
  const left = make("ol", { class: "tokens from" }, tokens(seen.queries, (at) => ({
    tabindex: at ? "-1" : "0", onpointerenter: () => turn(at), onfocus: () => turn(at), onclick: () => turn(at),
  })));
  left.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const next = left.children[[...left.children].indexOf(document.activeElement) + step];
    if (!step || !next) return;
    for (const one of left.children) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });

  function strings(row, faint) {
    const most = Math.max(...map[row], 1e-9);
    return map[row].map((share, key) => share < 0.01 * most ? null : draw("path", {
      class: faint ? "faint" : "", "stroke-width": (faint ? 2 : 5) * share, "stroke-opacity": faint ? 0.5 : 0.25 + 0.75 * (share / most),
      d: `M0 ${ROW * (row + 0.5)}C${GAP / 2} ${ROW * (row + 0.5)} ${GAP / 2} ${ROW * (key + 0.5)} ${GAP} ${ROW * (key + 0.5)}`,
    })).filter(Boolean);
  }

  function turn(row) {
    const most = Math.max(...map[row], 1e-9);
    [...left.children].forEach((one, at) => one.classList.toggle("on", at === row));
    [...right.children].forEach((one, key) => {
      one.style.setProperty("--share", (map[row][key] / most).toFixed(3));
      one.classList.toggle("on", map[row][key] === most);
    });
    lines.replaceChildren(...strings(row, false));
    told(row);
  }

  lines.replaceChildren(...map.flatMap((_, row) => strings(row, true)));
  return { element: make("div", { class: "strings" }, left, lines, right), turn };
}
