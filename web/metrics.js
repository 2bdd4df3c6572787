// SPDX-License-Identifier: Apache-2.0
// Reads Prometheus' text format and turns counters into rates and histograms into quantiles.

const kLine = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const kLabel = /(\w+)="((?:[^"\\]|\\.)*)"/g;

// A map from the name, without the server's prefix, to a list of {labels, value}.
export function parse(text) {
  const samples = new Map();
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) continue;
    const match = kLine.exec(line);
    if (!match) continue;
    const name = match[1].replace(/^(heddle_|sglang:)/, '');
    const labels = {};
    for (const [, key, value] of (match[2] ?? '').matchAll(kLabel)) labels[key] = value;
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push({labels, value: Number(match[3])});
  }
  return samples;
}

// The sum over all samples of the first name there is that agree with `labels`.
export function total(samples, names, labels = {}) {
  for (const name of [names].flat()) {
    const found = samples.get(name)?.filter(
      (sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value));
    if (found?.length) return found.reduce((sum, sample) => sum + sample.value, 0);
  }
  return 0;
}

// Growth per second between two scrapes; null where the server was started anew in between.
export function rate(before, after, elapsed, names, labels) {
  const growth = total(after, names, labels) - total(before, names, labels);
  return growth >= 0 && elapsed > 0 ? growth / elapsed : null;
}

function buckets(samples, name) {
  const counts = new Map();
  for (const {labels, value} of samples.get(`${name}_bucket`) ?? []) {
    const bound = labels.le === '+Inf' ? Infinity : Number(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  return counts;
}

// The quantile of what a histogram observed between two scrapes, interpolated within its bucket;
// null for no observations.
export function quantile(before, after, name, q) {
  const earlier = buckets(before, name);
  const steps = [...buckets(after, name)].map(([bound, n]) => [bound, n - (earlier.get(bound) ?? 0)])
    .sort((a, b) => a[0] - b[0]);
  const observed = steps.at(-1)?.[1] ?? 0;
  if (observed <= 0) return null;
  let lower = 0;
  let below = 0;
  for (const [bound, n] of steps) {
    if (n >= q * observed) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * (n > below ? (q * observed - below) / (n - below) : 1);
    }
    lower = bound;
    below = n;
  }
  return lower;
}
