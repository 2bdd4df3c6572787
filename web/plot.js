// SPDX-License-Identifier: Apache-2.0
// A small plot of one or two series over time, drawn as SVG.
import {html, svg} from './dom.js';

const kWidth = 340;
const kHeight = 120;
const kLeft = 44;
const kBottom = 18;
const kTop = 6;

// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `value`.
function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

export class Plot {
  // `series`: names of one or two; `format`: of values; `max`: fixed top of the scale.
  constructor({title, series, format, max}) {
    this.series = series;
    this.format = format;
    this.max = max;
    this.now = html('p', {class: 'now'});
    this.drawing = svg('svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, role: 'img', 'aria-label': title});
    this.title = title;
    const key = series.length < 2 ? [] : series.map((name, index) => html(
      'span', {class: 'key'},
      svg('svg', {viewBox: '0 0 18 8', 'aria-hidden': 'true'},
          svg('path', {class: `line ${'ab'[index]}`, d: 'M1 4H17'})), name));
    this.element = html('figure', {class: 'plot'},
                        html('figcaption', {}, html('span', {}, title), html('span', {}, ...key)),
                        this.now, this.drawing);
  }

  // `points`: {time, values} in seconds, ascending; a null value interrupts its line.
  draw(points, spanSeconds) {
    const end = points.at(-1)?.time ?? 0;
    const top = this.max ?? niceMax(Math.max(0, ...points.flatMap(({values}) => values)));
    const x = (time) => kLeft + (kWidth - kLeft) * (1 - (end - time) / spanSeconds);
    const y = (value) => kTop + (kHeight - kTop - kBottom) * (1 - Math.min(value / top, 1));
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(top * share);
      parts.push(svg('line', {class: 'grid', x1: kLeft, x2: kWidth, y1: at, y2: at}),
                 svg('text', {x: kLeft - 6, y: at + 3.5, 'text-anchor': 'end'}, this.format(top * share)));
    }
    parts.push(svg('text', {x: kLeft, y: kHeight - 3}, spanSeconds < 90 ? `${Math.round(spanSeconds)} s ago` : `${Math.round(spanSeconds / 60)} min ago`),
               svg('text', {x: kWidth, y: kHeight - 3, 'text-anchor': 'end'}, 'now'));
    this.series.forEach((name, index) => {
      let line = '';
      let area = '';
      let begin = null;
      let last = null;
      const close = () => {
        if (begin !== null && last !== begin) area += `L${x(last)} ${y(0)}L${x(begin)} ${y(0)}Z`;
        begin = null;
      };
      for (const {time, values} of points) {
        const value = values[index];
        if (value === null) {
          close();
          continue;
        }
        const command = `${begin === null ? 'M' : 'L'}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
        line += command;
        area += command;
        if (begin === null) begin = time;
        last = time;
      }
      close();
      if (index === 0) parts.push(svg('path', {class: 'area', d: area}));
      parts.push(svg('path', {class: `line ${'ab'[index]}`, d: line}));
    });
    this.drawing.replaceChildren(...parts);
    this.say(points);
  }

  say(points) {
    const latest = this.series.map((name, index) =>
      points.findLast(({values}) => values[index] !== null)?.values[index] ?? null);
    const texts = latest.map((value) => (value === null ? '–' : this.format(value)));
    this.now.replaceChildren(texts[0], ...texts.slice(1).map((text, index) => html(
      'small', {}, ` ${this.series[0]} · ${text} ${this.series[index + 1]}`)));
    const spoken = this.series.map((name, index) => `${name} ${texts[index]}`).join(', ');
    this.drawing.setAttribute('aria-label', `${this.title}, now: ${spoken}`);
  }
}
