// Numbers on an axis: where they stand, which of them are named, and curves made smooth.

export function scale(low, high, from, to, log) {
  const turn = log ? Math.log10 : (value) => value;
  let [begin, end] = [turn(low), turn(high)];
  if (!(end > begin)) [begin, end] = [begin - 0.5, begin + 0.5];
  const place = (value) => from + ((turn(value) - begin) / (end - begin)) * (to - from);
  place.back = (at) => {
    const value = begin + ((at - from) / (to - from)) * (end - begin);
    return log ? 10 ** value : value;
  };
  place.low = log ? 10 ** begin : begin;
  place.high = log ? 10 ** end : end;
  return place;
}

// Round values between two others, about as many as are wanted; `whole` allows no fractions: there is no half step.
export function ticks(low, high, wanted, log, whole = false) {
  if (log && high / low > 20) return powers(low, high, wanted).filter((value) => !whole || Number.isInteger(value));
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [low];
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(whole ? 1 : 0, [1, 2, 5, 10].find((many) => many * unit >= rough) * unit);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) {
    found.push(Number((at * step).toPrecision(12)));
  }
  return found;
}

function powers(low, high, wanted) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const many = last - first <= wanted / 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((last - first) / wanted));
  const found = [];
  for (let power = first; power <= last; power += every) {
    for (const one of many) {
      const value = one * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

// The smallest and largest of what is drawn; on a logarithmic axis only what is above zero counts.
export function extent(lists, log) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : log ? [1, 10] : [0, 1];
}

// The same for an axis that counts: it begins at zero unless that would leave most of it empty.
export function counted(lists, log) {
  const [low, high] = extent(lists, log);
  return [!log && low > 0 && low < high / 3 ? 0 : low, high];
}

// An exponential mean whose beginning is not pulled towards zero.
export function smoothed(values, weight) {
  if (!weight) return values;
  let [sum, total] = [0, 0];
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// The point of a curve that is nearest to a place on the axis.
export function nearest(x, value) {
  let [low, high] = [0, x.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(x[low] - value) <= Math.abs(x[high] - value) ? low : high;
}
