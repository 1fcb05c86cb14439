// Markdown as elements: a model card is text of a stranger, so that only a small set of elements is ever made, every
// text becomes a text node, HTML is shown as it is written, pictures become their description, and nothing is fetched.

import { make } from "./elements.js";

const LONGEST = 200_000;  // characters that are read
const MOST = 4000;  // lines that are read
const DEEPEST = 4;  // lists in lists, quotes in quotes
const CELLS = 40;
const PARTS = 600;  // of one paragraph; whatever follows is plain text
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)]) +(.*)$/;
const HEADING = /^(#{1,6}) +(.*)$/;
const FENCE = /^ {0,3}(```+|~~~+)/;
const RULE = /^ {0,3}(?:-{3,}|\*{3,}|_{3,}) *$/;
const DIVIDER = /^[ |:-]+$/;

export function markdown(text) {
  const all = text.slice(0, LONGEST).replaceAll("\r\n", "\n").split("\n");
  const lines = all.slice(0, MOST);
  const found = blocks(withoutMatter(lines), 0);
  if (all.length > lines.length || text.length > LONGEST) found.push(make("p", { class: "soft" }, "…"));
  return found;
}

// Cards of the Hub begin with settings between two lines of dashes.
function withoutMatter(lines) {
  if (lines[0]?.trim() !== "---") return lines;
  const end = lines.findIndex((line, at) => at && line.trim() === "---");
  return end > 0 ? lines.slice(end + 1) : lines;
}

function blocks(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const [made, next] = block(lines, at, depth);
    if (made) found.push(made);
    at = Math.max(next, at + 1);
  }
  return found;
}

// The block that begins at a line, and the line after it.
function block(lines, at, depth) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  if (FENCE.test(line)) return fenced(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [make(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2])), at + 1];
  if (RULE.test(line)) return [make("hr", {}), at + 1];
  if (line.startsWith(">") && depth < DEEPEST) return quoted(lines, at, depth);
  if (ITEM.test(line) && depth < DEEPEST) return listed(lines, at, depth);
  if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1])) return tabled(lines, at);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines[end])) end++;
  return [make("p", { dir: "auto" }, inline(lines.slice(at, end).join("\n"))), end];
}

function begins(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || line.startsWith(">") || ITEM.test(line);
}

function fenced(lines, at) {
  const [, fence] = FENCE.exec(lines[at]);
  let end = at + 1;
  while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end++;
  return [make("pre", { tabindex: "0" }, make("code", {}, lines.slice(at + 1, end).join("\n"))), end + 1];
}

function quoted(lines, at, depth) {
  let end = at;
  while (end < lines.length && lines[end].startsWith(">")) end++;
  return [make("blockquote", {}, blocks(lines.slice(at, end).map((one) => one.replace(/^> ?/, "")), depth + 1)), end];
}

// Items of one list; lines that are indented belong to the item above them.
function listed(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const numbered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (item && item[1].length <= indent.length && /\d/.test(item[2]) === numbered) items.push([item[3]]);
    else if (items.length && lines[end].startsWith(" ".repeat(indent.length + 2))) items.at(-1).push(lines[end].slice(indent.length + 2));
    else if (lines[end].trim() || !ITEM.test(lines[end + 1] ?? "")) break;
    end++;
  }
  const shown = ([first, ...rest]) => make("li", { dir: "auto" }, inline(first), blocks(rest, depth + 1));
  return [make(numbered ? "ol" : "ul", {}, items.map(shown)), end];
}

function tabled(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end++;
  const rows = [lines[at], ...lines.slice(at + 2, end)].map(cells);
  const row = (one, tag) => make("tr", {}, one.map((cell) => make(tag, tag === "th" ? { scope: "col" } : {}, inline(cell))));
  return [make("div", { class: "wide", tabindex: "0" }, make("table", {},
    make("thead", {}, row(rows[0], "th")), make("tbody", {}, rows.slice(1).map((one) => row(one, "td"))))), end];
}

function cells(text) {
  const found = [""];
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "\\" && text[at + 1] === "|") found[found.length - 1] += text[++at];
    else if (text[at] === "|") found.push("");
    else found[found.length - 1] += text[at];
  }
  if (!found[0].trim()) found.shift();
  if (found.length && !found.at(-1).trim()) found.pop();
  return found.slice(0, CELLS).map((cell) => cell.trim());
}

// Code, links, bold and italic of a text; each part is looked for once from left to right, so that the time grows
// with the length alone. A link goes to another site and carries nothing there; other kinds of links are text.
function inline(text) {
  const found = [];
  let [plain, at] = ["", 0];
  const flush = () => {
    if (plain) found.push(plain);
    plain = "";
  };
  while (at < text.length) {
    const part = found.length < PARTS ? special(text, at) : null;
    if (part) {
      flush();
      found.push(part.element);
      at = part.end;
    } else {
      if (text[at] === "\\" && at + 1 < text.length && /[\\`*_{}[\]()#+.!|>~-]/.test(text[at + 1])) at++;
      plain += text[at++];
    }
  }
  flush();
  return found;
}

function special(text, at) {
  const letter = text[at];
  if (letter === "`") {
    const mark = /^`+/.exec(text.slice(at, at + 8))[0];
    return closed(text, at, mark, mark, (inner) => make("code", {}, inner.trim()));
  }
  if (letter === "[" || (letter === "!" && text[at + 1] === "[")) return linked(text, at, letter === "!");
  if (letter === "*" && text[at + 1] === "*") return closed(text, at, "**", "**", (inner) => make("strong", {}, inner));
  if ((letter === "*" || letter === "_") && /\S/.test(text[at + 1] ?? " ") && !/\w/.test(text[at - 1] ?? " ")) {
    return closed(text, at, letter, letter, (inner) => make("em", {}, inner));
  }
  return null;
}

const REACH = 2000;  // how far the end of a part may lie from its beginning

function closed(text, at, open, close, made) {
  const begin = at + open.length;
  const end = text.slice(begin, begin + REACH).indexOf(close);
  return end > 0 ? { element: made(text.slice(begin, begin + end)), end: begin + end + close.length } : null;
}

function linked(text, at, picture) {
  const part = text.slice(at, at + REACH);
  const found = /^!?\[([^\]\n]{0,500})\]\(\s*<?([^\s)<>]{0,1000})>?(?:\s+"[^"\n]{0,200}")?\s*\)/.exec(part);
  if (!found) return null;
  const [whole, title, target] = found;
  const end = at + whole.length;
  if (picture) return { element: make("em", { class: "soft" }, title), end };
  if (!/^https?:\/\//i.test(target)) return { element: make("span", {}, title), end };
  return { element: make("a", { href: target, rel: "noopener noreferrer nofollow", target: "_blank", title: target }, title), end };
}
