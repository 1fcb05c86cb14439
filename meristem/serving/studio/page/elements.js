// Elements made of plain parts. Every text becomes a text node: nothing that a model, a file or a person
// wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function make(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function draw(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function own(text, properties) {
  // What comes from data or a model, in its own direction.
  return make("bdi", { dir: "auto", ...properties }, String(text));
}

let counted = 0;

export function labelled(title, control, properties) {
  control.id ||= `control-${++counted}`;
  return make("div", { class: "field", ...properties }, make("label", { for: control.id }, title), control);
}

export function select(options, chosen, onchange, properties) {
  const made = make("select", { onchange: () => onchange(made.value), ...properties });
  for (const [value, title] of options) made.append(make("option", { value, selected: value === chosen }, title));
  return made;
}

// A file input whose words are ours: the browser's own are in the browser's language, whatever the page speaks.
export function picturePicker(words) {
  const input = make("input", { type: "file", accept: "image/*", required: true, class: "hidden-file", onchange: () => {
    const [file] = input.files;
    name.textContent = file?.name ?? "";
    shown.hidden = true;
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => {
      shown.src = reader.result;
      shown.hidden = false;
    };
    reader.readAsDataURL(file);
  } });
  const name = make("bdi", { class: "soft" });
  const shown = make("img", { alt: "", hidden: true, class: "preview" });
  input.id = `control-${++counted}`;
  input.setAttribute("aria-label", words);
  return { input, element: make("div", { class: "field file" }, input, make("label", { class: "picker", for: input.id }, words), name, shown) };
}

export function table(head, rows, properties) {
  const cell = (value, first) => {
    const holds = value instanceof Node ? value : String(value ?? "");
    return first ? make("th", { scope: "row" }, holds) : make("td", {}, holds);
  };
  return make("div", { class: "wide", tabindex: "0" }, make("table", properties,
    make("thead", {}, make("tr", {}, head.map((one) => make("th", { scope: "col" }, one)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, row.map((value, at) => cell(value, at === 0)))))));
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    const [mantissa, power] = value.toExponential(Math.min(2, digits - 1)).split("e");
    return size >= 1e6 && size < 1e21 ? big(value) : `${Number(mantissa)}e${Number(power)}`;
  }
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

const UNITS = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"]];

function big(value) {
  const [unit, letter] = UNITS.find(([one]) => Math.abs(value) >= one);
  return `${Number((value / unit).toPrecision(3))} ${letter}`;
}

// The labels of one axis with as many decimals and the same unit: 0, 0.0005, 0.0010 and not 0, 5e-4, 0.001.
export function tickLabels(values, log) {
  const most = Math.max(...values.map(Math.abs));
  if (log || values.length < 2 || most < 1e-3 || most >= 1e21) return values.map((value) => number(value, 3));
  const [unit, letter] = UNITS.find(([one]) => most >= one) ?? [1, ""];
  const step = Math.min(...values.slice(1).map((value, at) => value - values[at])) / unit;
  const decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const how = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return values.map((value) => (value === 0 ? "0" : `${(value / unit).toLocaleString("en", how)}${letter && ` ${letter}`}`));
}

export function percent(value) {
  if (!Number.isFinite(value)) return "–";
  return `${(value * 100).toFixed(value >= 0.9995 || value < 0.0995 ? 1 : 0)} %`;
}

export function replace(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return place;
}
