// The reports of runs, comparisons and corpora: their first numbers in a list, and each as the page it is, without scripts.

import { make, number, own, replace } from "./elements.js";
import { metric } from "./names.js";
import { place } from "./parts.js";
import { get, repeat } from "./server.js";
import { language, t } from "./words.js";

export async function show({ place: view, view: kind, name, signal }) {
  if (name) {
    await one(view, kind, name, signal);
    return;
  }
  let before = "";
  await repeat(async () => {
    const { reports } = await get("/studio/reports", {}, signal);
    const found = reports.filter((report) => report.kind === kind).sort((a, b) => b.changed - a.changed);
    if (JSON.stringify(found) === before) return;
    before = JSON.stringify(found);
    replace(view, make("h1", {}, t(kind)), found.length
      ? make("ul", { class: "reports" }, found.map((report) => entry(kind, report)))
      : make("section", { class: "empty" }, make("p", {}, t("no_reports")), make("p", { class: "soft" }, t(`how_${kind}`))));
  }, 4, signal);
}

function entry(kind, report) {
  const numbers = Object.entries(report.numbers).map(([name, value]) =>
    make("span", { title: name }, make("small", {}, metric(name)), " ", make("b", {}, number(value))));
  return make("li", {}, make("a", { href: `#/${kind}/${place(report.name)}` },
    make("span", { class: "name" }, own(report.name), make("small", {}, own([about(report.title), date(report.changed)].filter(Boolean).join(" · ")))),
    make("span", { class: "some" }, numbers)));
}

// "bert, 0.2 M parameters, from scratch", as the report has it, in the language of the page.
function about(title) {
  const found = /^(\w+), ([\d.]+ [MGkB]+) parameters, (?:from scratch|begun from (.+))$/.exec(title);
  if (!found) return title;
  const [, family, parameters, from] = found;
  return t(from ? "model_begun" : "model_scratch", { family, parameters, from });
}

function date(seconds) {
  const how = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  return new Date(seconds * 1000).toLocaleString(language() === "zh" ? "zh-CN" : "en-GB", how);
}

async function one(view, kind, name, signal) {
  const { reports } = await get("/studio/reports", {}, signal);
  const report = reports.find((each) => each.name === name);
  const back = make("p", {}, make("a", { href: `#/${kind}` }, `← ${t(kind)}`));
  if (!report) {
    replace(view, back, make("section", { class: "empty" }, make("h1", {}, t("no_report", { name }))));
    return;
  }
  document.title = `${name} · ${t("report")} · Meristem`;
  const frame = make("iframe", { class: "report", sandbox: "", title: `${t("report")}: ${name}` });
  const link = make("a", { class: "button", target: "_blank", rel: "noreferrer" }, t("open_report"));
  // A frame knows the colours of the system, but not those or the language that were chosen on this page.
  const follow = () => {
    const theme = document.documentElement.dataset.theme;
    const address = `/studio/report?${new URLSearchParams({ name, language: language(), ...(theme === "auto" ? {} : { theme }) })}`;
    frame.setAttribute("src", address);
    link.href = address;
  };
  follow();
  window.addEventListener("theme", follow, { signal });
  replace(view, back,
    make("div", { class: "head" }, make("h1", {}, own(name)), make("span", { class: "soft" }, date(report.changed)),
      language() === "zh" && kind !== "comparisons" ? make("span", { class: "soft" }, t("report_english")) : null, link), frame);
}
