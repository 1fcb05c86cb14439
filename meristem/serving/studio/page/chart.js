// A chart of curves: named at their ends, dashed apart, with a crosshair for mouse, finger and keys; a part is
// looked at by dragging over it.

import { draw, make, number } from "./elements.js";
import { extent, nearest, scale, smoothed, ticks } from "./scales.js";
import { t } from "./words.js";

export const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 5", "1 4", "6 2 1 2 1 2"];
export const COLOURS = 8;
const PADDING = 10;
const MARGIN = { top: 12, right: 14, bottom: 26, left: 52 };

export class Chart {
  constructor({ title = "", height = 220, axis = "", zoomed = null } = {}) {
    Object.assign(this, { title, height, axis, zoomed, under: make("small", {}), lines: [], weight: 0, logX: false, logY: false, at: null });
    this.readout = make("p", { class: "readout", "aria-live": "polite" });
    this.picture = draw("svg", { class: "chart", tabindex: "0", role: "img", height });
    // A sheet of its own above the curves: what moves with the pointer does not have them drawn again.
    this.cursor = draw("svg", { class: "cursor", "aria-hidden": "true", height });
    this.element = make("figure", { class: "plot" },
      title ? make("figcaption", {}, title, " ", this.under) : null,
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
    this.right = width - (named ? Math.min(150, 26 + 6.4 * Math.max(...this.lines.map((one) => one.name.length))) : MARGIN.right);
    this.shown = this.lines.map((line) => ({ ...line, smooth: smoothed(line.y, this.weight) }));
    const [least, most] = this.range();
    this.x = scale(low, high, MARGIN.left, this.right, this.logX);
    this.y = scale(least, most, this.height - MARGIN.bottom, MARGIN.top, this.logY);
    for (const sheet of [this.picture, this.cursor]) {
      sheet.setAttribute("width", width);
      sheet.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    }
    this.picture.setAttribute("aria-label", this.told());
    this.picture.replaceChildren(this.frame(), ...this.curves(), ...(named ? this.names() : []));
    if (this.at !== null) this.point(this.at);
  }

  bounds() {
    const found = extent(this.lines.map((line) => line.x), this.logX);
    return this.part ?? found;
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

  frame() {
    const group = draw("g", { class: "frame" });
    const bottom = this.height - MARGIN.bottom;
    for (const value of ticks(this.y.low, this.y.high, 5, this.logY)) {
      const at = this.y(value);
      group.append(draw("line", { x1: MARGIN.left, x2: this.right, y1: at, y2: at }));
      group.append(draw("text", { x: MARGIN.left - 7, y: at + 4, "text-anchor": "end" }, number(value, 3)));
    }
    for (const value of ticks(this.x.low, this.x.high, Math.max(2, this.width / 110), this.logX)) {
      const at = this.x(value);
      group.append(draw("line", { class: "tick", x1: at, x2: at, y1: bottom, y2: bottom + 4 }));
      group.append(draw("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, number(value, 3)));
    }
    return group;
  }

  curves() {
    const found = [];
    for (const line of this.shown) {
      const look = { "stroke-dasharray": DASHES[line.mark % DASHES.length], class: `curve c${line.mark % COLOURS}` };
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
      if (across < MARGIN.left - 1 || across > this.right + 1) {
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
    if (!(across >= MARGIN.left - 1 && across <= this.right + 1) || !Number.isFinite(up)) return null;
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
      const name = line.name.length > 20 ? `${line.name.slice(0, 9)}…${line.name.slice(-10)}` : line.name;
      return draw("text", { class: `end c${line.mark % COLOURS}`, x: this.right + 8, y: y + 4 }, name);
    });
  }

  listen() {
    const place = (event) => {
      const box = this.picture.getBoundingClientRect();
      return Math.min(this.right, Math.max(MARGIN.left, event.clientX - box.left));
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
      told.push(`${line.name} ${number(line.smooth[near])}`);
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

export function sparkline(values) {
  const [low, high] = extent([values], false);
  const x = scale(0, Math.max(1, values.length - 1), 2, 98, false);
  const y = scale(low, high, 24, 4, false);
  const points = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return draw("svg", { class: "spark", viewBox: "0 0 100 28", width: 100, height: 28, preserveAspectRatio: "none", "aria-hidden": "true" },
    values.length > 1 ? draw("polyline", { points }) : null);
}
