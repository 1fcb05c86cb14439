// A chart of curves: named at their ends, dashed apart, with a crosshair for mouse, finger and keys; a part is
// looked at by dragging over it.

import { draw, make, number, tickLabels } from "./elements.js";
import { value as shownValue } from "./names.js";
import { counted, extent, nearest, scale, smoothed, ticks } from "./scales.js";
import { t } from "./words.js";

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 5", "1 4", "6 2 1 2 1 2"];
export const COLOURS = 16;
const PADDING = 10;
const MARGIN = { top: 12, right: 14, bottom: 40, left: 52 };
const LETTER = 6.4;  // about the width of a letter of an axis

// The second eight have colours of their own, and dashes that their neighbours in the first eight do not have.
export const dashes = (mark) => DASHES[(mark + 3 * Math.floor(mark / DASHES.length)) % DASHES.length];

export class Chart {
  // `title` names the metric for people, `metric` as metrics.jsonl has it; `shared` is a range for several charts.
  constructor({ title = "", metric = "", height = 230, axis = "", zoomed = null, captioned = true } = {}) {
    Object.assign(this, { title, metric, height, axis, zoomed, captioned, shared: null, whole: false, left: MARGIN.left, under: make("small", {}), lines: [], weight: 0, logX: false, logY: false, at: null });
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    this.picture = draw("svg", { class: "chart", tabindex: "0", role: "img", height });
    // A sheet of its own above the curves: what moves with the pointer does not have them drawn again.
    this.cursor = draw("svg", { class: "cursor", "aria-hidden": "true", height });
    this.element = make("figure", { class: "plot" },
      captioned ? make("figcaption", { title: metric }, title, " ", this.under) : null,
      make("div", { class: "sheets" }, this.picture, this.cursor), this.readout);
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.element);
    this.listen();
  }

  // lines: [{name, x, y, mark}] where mark is the number of its colour and dashes.
  set(lines) {
    this.lines = lines.filter((line) => line.x.length);
    this.paint();
  }

  paint() {
    const width = this.element.clientWidth - 2 * PADDING;
    if (width < 60) return;
    this.width = width;
    const [low, high] = this.bounds();
    const named = this.lines.length > 1;
    this.under.textContent = this.lines.length === 1 ? this.lines[0].name : "";
    this.right = width - (named ? Math.min(150, width * 0.34, 26 + 6.6 * Math.max(...this.lines.map((one) => wide(one.name)))) : MARGIN.right);
    this.shown = this.lines.map((line) => ({ ...line, smooth: smoothed(line.y, this.weight) }));
    const [least, most] = this.range();
    this.y = scale(least, most, this.height - MARGIN.bottom, MARGIN.top, this.logY);
    const marks = ticks(this.y.low, this.y.high, 5, this.logY);
    const labels = this.metric === "memory" ? marks.map((value) => shownValue("memory", value)) : tickLabels(marks, this.logY);
    this.marks = marks.map((value, at) => [value, labels[at]]);
    this.left = 24 + LETTER * Math.max(3, ...this.marks.map(([, told]) => told.length));
    this.x = scale(low, high, this.left, this.right, this.logX);
    for (const sheet of [this.picture, this.cursor]) {
      sheet.setAttribute("width", width);
      sheet.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    }
    this.picture.setAttribute("aria-label", this.told());
    this.picture.replaceChildren(this.frame(), ...this.curves(), ...(named ? this.names() : []));
    if (this.at !== null) this.point(this.at);
  }

  bounds() {
    return this.part ?? this.shared ?? counted(this.lines.map((line) => line.x), this.logX);
  }

  // What the curves span, with a little air; smooth ones alone where the rest is a veil behind them.
  range() {
    const inside = (line, values) => (this.part ? values.filter((_, at) => line.x[at] >= this.part[0] && line.x[at] <= this.part[1]) : values);
    let [least, most] = extent(this.shown.map((line) => inside(line, line.smooth)), this.logY);
    if (this.weight) {
      const [below, above] = extent(this.shown.map((line) => inside(line, line.y)), this.logY);
      const air = (most - least) * 0.5;
      [least, most] = [Math.max(below, least - air), Math.min(above, most + air)];
      if (this.logY && least <= 0) least = below;
    }
    const air = this.logY ? 0 : (most - least) * 0.06 || Math.abs(most) * 0.05 || 1;
    return [least - air, most + air];
  }

  // Lines and numbers at round values, and what both axes show.
  frame() {
    const group = draw("g", { class: "frame" });
    const bottom = this.height - MARGIN.bottom;
    for (const [value, told] of this.marks) {
      const at = this.y(value);
      group.append(draw("line", { x1: this.left, x2: this.right, y1: at, y2: at }));
      group.append(draw("text", { class: "mark-y", x: this.left - 7, y: at + 4, "text-anchor": "end" }, told));
    }
    const room = Math.max(2, (this.right - this.left) / 90);
    const marks = ticks(this.x.low, this.x.high, room, this.logX, this.whole);
    const labels = tickLabels(marks, this.logX);
    for (const [nth, value] of marks.entries()) {
      const at = this.x(value);
      group.append(draw("line", { class: "tick", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
      group.append(draw("text", { class: "mark-x", x: at, y: bottom + 17, "text-anchor": "middle" }, labels[nth]));
    }
    group.append(draw("text", { class: "axis-name", x: (this.left + this.right) / 2, y: this.height - 5, "text-anchor": "middle" }, this.axis));
    const middle = (MARGIN.top + bottom) / 2;
    const name = axisName(this.title, (bottom - MARGIN.top) / LETTER);
    group.append(draw("text", { class: "axis-name", x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, name));
    return group;
  }

  curves() {
    const found = [];
    for (const line of this.shown) {
      const look = { "stroke-dasharray": dashes(line.mark), class: `curve c${line.mark % COLOURS}` };
      if (this.weight) found.push(draw("path", { class: `${look.class} veil`, d: this.way(line.x, line.y) }));
      found.push(draw("path", { ...look, d: this.way(line.x, line.smooth) }));
      if (line.x.length < 30) {
        found.push(...line.x.map((x, at) => this.dot(line, x, line.smooth[at], 2.2)));
      }
    }
    return found.filter(Boolean);
  }

  way(x, y) {
    const parts = [];
    let pen = "M";
    for (let at = 0; at < x.length; at++) {
      if ((this.logX && x[at] <= 0) || (this.logY && y[at] <= 0)) continue;
      const [across, up] = [this.x(x[at]), this.y(y[at])];
      if (across < this.left - 1 || across > this.right + 1) {
        pen = "M";
        continue;
      }
      const clipped = Math.min(this.height - MARGIN.bottom, Math.max(MARGIN.top - 6, up));
      parts.push(`${pen}${across.toFixed(1)} ${clipped.toFixed(1)}`);
      pen = "L";
    }
    return parts.join("");
  }

  dot(line, x, y, radius) {
    const [across, up] = [this.x(x), this.y(y)];
    if (!(across >= this.left - 1 && across <= this.right + 1) || !Number.isFinite(up)) return null;
    return draw("circle", { class: `dot c${line.mark % COLOURS}`, cx: across, cy: up, r: radius });
  }

  // The name of each curve where it ends, pushed apart where they would lie on each other.
  names() {
    const ends = this.shown.map((line) => ({ line, y: this.y(line.smooth.at(-1)) })).sort((a, b) => a.y - b.y);
    const lowest = this.height - 8;
    ends.forEach((end, at) => {
      if (at) end.y = Math.max(end.y, ends[at - 1].y + 13);
    });
    ends.toReversed().forEach((end, at) => {
      end.y = Math.min(end.y, lowest - 13 * at);
    });
    return ends.map(({ line, y }) => {
      const room = Math.max(8, Math.floor((this.width - this.right - 10) / LETTER));
      const half = Math.floor((room - 1) / 2);
      const name = line.name.length > room ? `${line.name.slice(0, half)}…${line.name.slice(-half)}` : line.name;
      return draw("g", {}, draw("title", {}, line.full ?? line.name),
        draw("text", { class: `end c${line.mark % COLOURS}`, x: this.right + 8, y: y + 4 }, name));
    });
  }

  listen() {
    const place = (event) => {
      const box = this.picture.getBoundingClientRect();
      return Math.min(this.right, Math.max(this.left, event.clientX - box.left));
    };
    this.picture.addEventListener("pointermove", (event) => {
      const to = place(event);
      this.soon(() => {
        this.point(to);
        if (this.from !== undefined) this.span(this.from, to);
      });
    });
    this.picture.addEventListener("pointerleave", () => {
      this.soon(null);
      this.from = undefined;
      this.leave();
    });
    this.picture.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") this.from = place(event);
    });
    this.picture.addEventListener("pointerup", (event) => {
      const [from, to] = [this.from, place(event)];
      this.from = undefined;
      if (from !== undefined && Math.abs(to - from) > 12) this.look([this.x.back(Math.min(from, to)), this.x.back(Math.max(from, to))]);
    });
    this.picture.addEventListener("dblclick", () => this.look(null));
    this.picture.addEventListener("keydown", (event) => this.key(event));
    this.picture.addEventListener("blur", () => this.leave());
  }

  // Once a frame, however often the pointer moves in it; null takes back what has not been drawn.
  soon(work) {
    cancelAnimationFrame(this.waiting);
    if (work) this.waiting = requestAnimationFrame(work);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && this.x) {
      const first = this.shown[0];
      if (!first) return;
      const from = this.at === null ? first.x.length - 1 - (step > 0 ? 0 : -1) : nearest(first.x, this.x.back(this.at));
      const to = Math.min(first.x.length - 1, Math.max(0, from + step * (event.shiftKey ? 10 : 1)));
      this.point(this.x(first.x[to]));
      event.preventDefault();
    } else if (event.key === "Escape") {
      this.look(null);
      this.leave();
    }
  }

  // A part of the axis by itself; null shows all of it again.
  look(part) {
    this.part = part;
    this.zoomed?.(part);
    this.paint();
  }

  span(from, to) {
    const [left, width] = [Math.min(from, to), Math.abs(to - from)];
    const bottom = this.height - MARGIN.bottom;
    this.cursor.prepend(draw("rect", { class: "span", x: left, width, y: MARGIN.top, height: bottom - MARGIN.top }));
  }

  point(at) {
    this.at = at;
    if (!this.x || !this.shown.length) return;
    const bottom = this.height - MARGIN.bottom;
    const parts = [draw("line", { x1: at, x2: at, y1: MARGIN.top, y2: bottom })];
    const told = [];
    const value = this.x.back(at);
    for (const line of this.shown) {
      const near = nearest(line.x, value);
      parts.push(this.dot(line, line.x[near], line.smooth[near], 4));
      told.push(`${line.name} ${shownValue(this.metric, line.smooth[near])}`);
    }
    this.cursor.replaceChildren(...parts.filter(Boolean));
    const first = this.shown[0];
    const place = number(first.x[nearest(first.x, value)]);
    this.readout.textContent = `${this.axis} ${place} · ${told.join(" · ")}`;
  }

  leave() {
    this.at = null;
    this.cursor.replaceChildren();
    this.readout.textContent = this.part ? t("whole_again") : "";
  }

  told() {
    const ends = this.lines.map((line) => `${line.name}: ${number(line.y[0])} → ${number(line.y.at(-1))}`);
    return `${this.title} ${ends.join("; ")}`;
  }
}

// Letters of Chinese and the like are as wide as two.
function wide(text) {
  return [...text].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x2e80 ? 1.8 : 1), 0);
}

// A title beside its axis: whole where there is room, else only what is measured ("Top-1 accuracy"), else its beginning.
function axisName(title, room) {
  if (wide(title) <= room) return title;
  const last = title.split(/: |：/).at(-1);
  const short = last.charAt(0).toUpperCase() + last.slice(1);
  return wide(short) <= room ? short : `${short.slice(0, Math.floor((room - 1) * short.length / wide(short)))}…`;
}

export function sparkline(values) {
  const [low, high] = extent([values], false);
  const x = scale(0, Math.max(1, values.length - 1), 2, 98, false);
  const y = scale(low, high, 24, 4, false);
  const points = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return draw("svg", { class: "spark", viewBox: "0 0 100 28", width: 100, height: 28, preserveAspectRatio: "none", "aria-hidden": "true" },
    values.length > 1 ? draw("polyline", { points }) : null);
}
