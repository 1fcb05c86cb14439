// The reports of runs and corpora: their first numbers in a list, and each as the page it is, without scripts.

import { make, number, own, replace } from "./elements.js";
import { place } from "./runs.js";
import { get, repeat } from "./server.js";
import { t } from "./words.js";

export async function show({ place: view, view: kind, name, signal }) {
  if (name) {
    one(view, kind, name);
    return;
  }
  let before = "";
  await repeat(async () => {
    const { reports } = await get("/studio/reports", {}, signal);
    const found = reports.filter((report) => report.kind === kind);
    if (JSON.stringify(found) === before) return;
    before = JSON.stringify(found);
    replace(view, make("h1", {}, t(kind)), found.length
      ? make("ul", { class: "reports" }, found.map((report) => entry(kind, report)))
      : make("section", { class: "empty" }, make("p", {}, t("no_reports")), make("p", { class: "soft" }, t(`how_${kind}`))));
  }, 4, signal);
}

function entry(kind, report) {
  const numbers = Object.entries(report.numbers).map(([name, value]) =>
    make("span", {}, make("small", {}, name), " ", make("b", {}, number(value))));
  return make("li", {}, make("a", { href: `#/${kind}/${place(report.name)}` },
    make("span", { class: "name" }, own(report.name), make("small", {}, own(report.title))),
    make("span", { class: "some" }, numbers)));
}

function one(view, kind, name) {
  const address = `/studio/report?name=${encodeURIComponent(name)}`;
  replace(view,
    make("p", {}, make("a", { href: `#/${kind}` }, `← ${t(kind)}`)),
    make("div", { class: "head" }, make("h1", {}, own(name)),
      make("a", { class: "button", href: address, target: "_blank", rel: "noreferrer" }, t("open_report"))),
    make("iframe", { class: "report", sandbox: "", src: address, title: `${t("report")}: ${name}` }));
}
