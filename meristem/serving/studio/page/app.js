// The page: what its address says is what it shows.

import { make, replace } from "./elements.js";
import { alive, Gone, sayGone, trouble } from "./server.js";
import { missing } from "./unknown.js";
import { choose, keep, language, read, t } from "./words.js";

const VIEWS = {
  runs: () => import("./runs.js"),
  run: () => import("./run.js"),
  compare: () => import("./compare.js"),
  playground: () => import("./playground.js"),
  attention: () => import("./attention.js"),
  rewards: () => import("./reports.js"),
  tasks: () => import("./reports.js"),
  comparisons: () => import("./reports.js"),
  corpus: () => import("./reports.js"),
};
const TABS = ["runs", "compare", "playground", "attention", "rewards", "tasks", "comparisons", "corpus"];
const THEMES = ["auto", "light", "dark"];
const STORED = "meristem.theme";
const BEAT = 4000;  // milliseconds between two looks at whether the server still answers

let leaving = new AbortController();
let shown = "";
let unfinished = false;  // the view could not be shown: it is tried again when the server is back

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "runs", ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { view, name: rest.join("/"), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  const { view, name, query } = address();
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  trouble("");
  unfinished = false;
  tabs(view);
  const place = document.getElementById("view");
  const turned = shown && shown !== `${view}/${name}`;
  shown = `${view}/${name}`;
  document.title = name ? `${name} · Meristem` : `${t(view)} · Meristem`;
  if (!Object.hasOwn(VIEWS, view)) {
    document.title = `${t("missing_view")} · Meristem`;
    missing(place);
    return;
  }
  try {
    const module = await VIEWS[view]();
    if (signal.aborted) return;
    replace(place, make("p", { class: "soft loading" }, t("loading")));
    if (turned) {
      window.scrollTo(0, 0);
      place.focus({ preventScroll: true });
    }
    await module.show({ place, view, name, query, signal });
  } catch (error) {
    if (signal.aborted) return;
    unfinished = true;
    trouble(error instanceof Gone ? "" : error.message);
  }
}

function tabs(view) {
  const current = view === "run" ? "runs" : view;
  const bar = document.getElementById("tabs");
  bar.setAttribute("aria-label", t("sections"));
  replace(bar, TABS.map((tab) =>
    make("a", { href: `#/${tab}`, "aria-current": tab === current ? "page" : null }, t(tab))));
  const here = bar.querySelector("[aria-current]");
  if (here) bar.scrollLeft = here.offsetLeft - bar.offsetLeft - (bar.clientWidth - here.clientWidth) / 2;
}

function switches() {
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
  document.querySelector(".skip").textContent = t("skip");
  const theme = read(STORED) ?? "auto";
  document.documentElement.dataset.theme = theme;
  const [words, colours] = ["language", "theme"].map((name) => document.getElementById(name));
  words.textContent = t("language");
  words.lang = language() === "zh" ? "en" : "zh-CN";
  colours.textContent = t(`theme_${theme}`);
  colours.title = t("theme_title");
  document.getElementById("gone-how").textContent = t("gone_how");
  document.getElementById("gone-again").textContent = t("try_now");
  sayGone();
}

document.getElementById("language").addEventListener("click", () => {
  choose(language() === "zh" ? "en" : "zh");
  switches();
  show();
});
document.getElementById("theme").addEventListener("click", () => {
  const theme = read(STORED) ?? "auto";
  keep(STORED, THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  switches();
  window.dispatchEvent(new Event("theme"));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("view").focus();
});
document.getElementById("gone-again").addEventListener("click", alive);
window.addEventListener("hashchange", show);
window.addEventListener("back", () => unfinished && show());
setInterval(() => document.hidden || alive(), BEAT);
switches();
show();
