// Small parts that several views share: a run's state, its progress, times, and buttons that copy.

import { make, number } from "./elements.js";
import { t } from "./words.js";

export const MARKS = { training: "●", finished: "✓", stopped: "■", failed: "✕", new: "○" };

export function state(run) {
  return make("span", { class: `state ${run.state}` }, make("i", { "aria-hidden": "true" }, MARKS[run.state]), t(run.state));
}

// A run's name as a part of an address.
export function place(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}

export function ago(seconds, now) {
  const gone = Math.max(0, Math.round(now - seconds));
  if (gone < 90) return t("ago_s", { n: gone });
  if (gone < 5400) return t("ago_m", { n: Math.round(gone / 60) });
  if (gone < 48 * 3600) return t("ago_h", { n: Math.round(gone / 3600) });
  return t("ago_d", { n: Math.round(gone / 86400) });
}

export function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 90) return t("seconds", { n: whole });
  if (whole < 600) return t("minutes_seconds", { m: Math.floor(whole / 60), s: whole % 60 });
  const minutes = Math.round(whole / 60);
  if (minutes < 90) return t("minutes", { n: minutes });
  if (minutes < 48 * 60) return t("hours_minutes", { h: Math.floor(minutes / 60), m: minutes % 60 });
  const hours = Math.round(minutes / 60);
  return t("days_hours", { d: Math.floor(hours / 24), h: hours % 24 });
}

export function progress(run) {
  const told = run.total
    ? t("step_of", { step: number(run.step), total: number(run.total) })
    : t("step_only", { step: number(run.step) });
  const share = run.total ? Math.min(1, run.step / run.total) : 0;
  return make("span", { class: "progress" },
    make("span", { class: "bar", "aria-hidden": "true" }, make("i", { style: { width: `${share * 100}%` } })), told);
}

// A button that copies what `text()` gives; where the browser forbids it, `fallback` is selected instead.
export function copyButton(text, fallback) {
  const button = make("button", { type: "button", class: "copy", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = t("copied");
      setTimeout(() => { button.textContent = t("copy"); }, 2000);
    } catch {
      if (fallback) getSelection().selectAllChildren(fallback);
    }
  } }, t("copy"));
  return button;
}

export function command(text) {
  const code = make("code", { tabindex: "0" }, text);
  return make("div", { class: "command" }, code, copyButton(() => text, code));
}
