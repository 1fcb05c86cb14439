// Maps of attention: means, rollout, and drawing one on a canvas.

// [layers][heads][rows][columns] → [rows][columns]
export function mean(weights) {
  const all = weights.flat();
  return all[0].map((row, at) => row.map((_, key) => all.reduce((sum, head) => sum + head[at][key], 0) / all.length));
}

// How much of each token has reached each row through all layers (Abnar & Zuidema 2020).
export function rollout(weights) {
  const size = weights[0][0][0].length;
  const before = size - weights[0][0].length;
  const unit = (row) => Array.from({ length: size }, (_, key) => (key === row ? 1 : 0));
  let whole = Array.from({ length: size }, (_, row) => unit(row));
  for (const layer of weights) {
    const looked = mean([layer]);
    const step = whole.map((_, row) => row < before ? unit(row) : unit(row).map((own, key) => 0.5 * own + 0.5 * looked[row - before][key]));
    whole = step.map((row) => unit(0).map((_, key) => row.reduce((sum, share, middle) => sum + share * whole[middle][key], 0)));
  }
  return whole.slice(before);
}

// Whether a kind looks at itself, so that layers can be multiplied.
export function rolls(kind) {
  return kind === "self" || kind === "decoder" || kind === "content";
}

export function paint(canvas, map, ink) {
  const [rows, columns] = [map.length, map[0].length];
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const most = Math.max(...map.map((row) => Math.max(...row)), 1e-9);
  map.forEach((row, y) => row.forEach((share, x) => {
    const at = 4 * (y * columns + x);
    image.data.set([...ink, Math.round(255 * (share / most) ** 0.8)], at);
  }));
  context.putImageData(image, 0, 0);
}

// The colour of marks, as the style sheet has it.
export function inkOf(element) {
  const [red, green, blue] = getComputedStyle(element).getPropertyValue("--good").split(",").map(Number);
  return [red, green, blue];
}
