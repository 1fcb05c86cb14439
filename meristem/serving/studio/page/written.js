// A text as it is written: each token can be pointed at, and says how likely it was and what else was.

import { make, percent } from "./elements.js";
import { readable } from "./tokens.js";
import { t } from "./words.js";

export function written(prompt) {
  const body = make("p", { class: "written", dir: "auto" }, make("span", { class: "soft" }, prompt));
  const told = make("p", { class: "readout", role: "status" });
  const element = make("div", {}, body, told, make("p", { class: "soft" }, t("hover_tokens")));
  const waiting = [];

  function tell(token, event) {
    for (const one of body.querySelectorAll(".on")) one.classList.remove("on");
    event.currentTarget.classList.add("on");
    const others = (token.top ?? []).map((one) => `${readable(one.token)} ${percent(Math.exp(one.logprob))}`).join(" · ");
    const first = t("token_told", { token: readable(token.token), p: percent(Math.exp(token.logprob)) });
    told.textContent = others ? `${first} · ${t("instead", { others })}` : first;
  }

  // Texts come in pieces that are whole characters, tokens one by one: a piece belongs to the tokens since the last one.
  function add({ text, tokens = [] }) {
    waiting.push(...tokens);
    if (!text) return;
    const token = waiting.at(-1);
    const share = waiting.reduce((sum, one) => sum + one.logprob, 0) / Math.max(1, waiting.length);
    waiting.length = 0;
    if (!token) {
      body.append(text);
      return;
    }
    body.append(make("span", { class: "token", tabindex: "0", style: { "--share": Math.exp(share).toFixed(3) },
      title: percent(Math.exp(token.logprob)), onpointerenter: (event) => tell(token, event), onfocus: (event) => tell(token, event) }, text));
  }

  const text = () => body.textContent.slice(prompt.length);
  return { element, add, text, end: () => element.classList.add("ended") };
}
