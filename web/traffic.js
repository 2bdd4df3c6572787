// SPDX-License-Identifier: Apache-2.0
// Throughput and latency over the last minutes, and the requests that run or wait.
import {getText, postJson} from './api.js';
import {byId, count, html, meter, percent, seconds, short} from './dom.js';
import {parse, quantile, rate, total} from './metrics.js';
import {Plot} from './plot.js';

const kSpanSeconds = 600;  // of plots; less while there is less to show
const kMaxGapSeconds = 5;  // between two points that a line joins
const kStored = 'heddle-traffic';
const kMinSpanSeconds = 60;
const kWindowSeconds = 10;  // that quantiles look back over
const kMaxRequests = 200;

const perSecond = (value) => `${short(value)}/s`;
const plots = [
  {title: 'Tokens computed', series: ['output', 'prompt'], format: perSecond,
   values: ({before, now, elapsed}) => [
     rate(before, now, elapsed, 'realtime_tokens_total', {mode: 'decode'}),
     rate(before, now, elapsed, 'realtime_tokens_total', {mode: 'prefill_compute'})]},
  {title: 'Requests', series: ['running', 'waiting'], format: short,
   values: ({now}) => [total(now, ['running_requests', 'num_running_reqs']),
                       total(now, ['waiting_requests', 'num_queue_reqs'])]},
  {title: 'Time to first token', series: ['median', '95 %'], format: seconds,
   values: ({past, now}) => [0.5, 0.95].map((q) => quantile(past, now, 'time_to_first_token_seconds', q))},
  {title: 'Time between tokens', series: ['median', '95 %'], format: seconds,
   values: ({past, now}) => [0.5, 0.95].map((q) => quantile(past, now, 'inter_token_latency_seconds', q))},
  {title: 'Prompt tokens from the cache', series: ['share'], format: percent, max: 1,
   values: ({past, now}) => {
     const cached = rate(past, now, 1, 'realtime_tokens_total', {mode: 'prefill_cache'}) ?? 0;
     const computed = rate(past, now, 1, 'realtime_tokens_total', {mode: 'prefill_compute'}) ?? 0;
     return [cached + computed > 0 ? cached / (cached + computed) : null];
   }},
  {title: 'KV pool used by requests', series: ['share'], format: percent, max: 1,
   values: ({now}) => [total(now, ['kv_usage_ratio', 'token_usage'])]},
].map((options) => ({plot: new Plot(options), values: options.values, points: []}));

const scrapes = [];  // {time, samples}, newest last
let refused = '';    // why there are no figures

// Once a second, whatever view is shown: plots have a past when they are opened.
export async function sample() {
  try {
    const samples = parse(await getText('metrics'));
    scrapes.push({time: Date.now() / 1000, samples});
    refused = '';
  } catch (error) {
    refused = error.message;
    return;
  }
  const latest = scrapes.at(-1);
  while (scrapes.length > 2 && latest.time - scrapes[0].time > kWindowSeconds) scrapes.shift();
  if (scrapes.length < 2) return;
  const before = scrapes.at(-2);
  const moment = {before: before.samples, past: scrapes[0].samples, now: latest.samples,
                  elapsed: latest.time - before.time};
  for (const {points, values} of plots) {
    add(points, {time: latest.time, values: values(moment)});
    while (latest.time - points[0].time > kSpanSeconds) points.shift();
  }
}

// While the page was hidden or loaded anew there are no points: the line is interrupted.
function add(points, point) {
  const last = points.at(-1);
  if (last && point.time < last.time) points.length = 0;  // the clock was set back
  else if (last && point.time - last.time > kMaxGapSeconds) points.push({time: point.time, values: point.values.map(() => null)});
  points.push(point);
}

// The points stay with the tab when the page is loaded again.
function keep() {
  try {
    sessionStorage.setItem(kStored, JSON.stringify(plots.map(({points}) => points)));
  } catch { /* storage is full or forbidden */ }
}

function restore() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(kStored));
    const since = Date.now() / 1000 - kSpanSeconds;
    plots.forEach(({points}, index) => points.push(...stored[index].filter(({time}) => time > since)));
  } catch { /* nothing was stored */ }
}

function requestRow(request) {
  const cached = request.prompt_tokens > 0 ? request.cached_tokens / request.prompt_tokens : 0;
  const filled = Math.min(request.computed_tokens, request.prompt_tokens) / request.prompt_tokens;
  const share = request.phase === 'decode' ? request.output_tokens / request.max_new_tokens : filled;
  const progress = request.phase === 'decode'
    ? `${count(request.output_tokens)} of ${count(request.max_new_tokens)}`
    : request.phase === 'prefill' ? `prompt ${percent(filled)}` : '–';
  const abort = html('button', {type: 'button', 'aria-label': `Abort ${request.rid}`, onclick: async () => {
    abort.disabled = true;
    await postJson('abort_request', {rid: request.rid});
  }}, 'Abort');
  return html('tr', {'data-rid': request.rid},
              html('td', {class: 'mono', title: request.rid}, request.rid.length > 26 ? `${request.rid.slice(0, 25)}…` : request.rid),
              html('td', {}, html('span', {class: `phase ${request.phase}`}, request.phase),
                   request.num_returns > 0 ? ` sent back ${request.num_returns}×` : ''),
              html('td', {}, request.priority === null ? '–' : String(request.priority)),
              html('td', {}, request.tenant || '–'),
              html('td', {class: 'number'}, count(request.prompt_tokens)),
              html('td', {}, meter(cached), percent(cached)),
              html('td', {}, meter(share), progress),
              html('td', {class: 'number'}, seconds(request.age_seconds)), html('td', {}, abort));
}

function showRequests({num_requests: number, requests}) {
  const focused = document.activeElement?.closest('[data-rid]')?.dataset.rid;
  byId('requests').replaceChildren(...requests.map(requestRow));
  if (focused) byId('requests').querySelector(`[data-rid="${CSS.escape(focused)}"] button`)?.focus();
  byId('no-requests').hidden = number > 0;
  byId('request-count').textContent =
    number > requests.length ? `${count(number)}, the oldest ${count(requests.length)} are shown` : count(number);
}

export async function refresh() {
  for (const {plot, points} of plots) {
    const known = points.length > 0 ? points.at(-1).time - points[0].time : 0;
    plot.draw(points, Math.max(kMinSpanSeconds, known));
  }
  showRequests(await postJson('inspect', {max_requests: kMaxRequests, max_nodes: 0}));
  if (refused) throw new Error(`No plots: ${refused}`);
}

export function setUp() {
  restore();
  window.addEventListener('pagehide', keep);
  byId('plots').append(...plots.map(({plot}) => plot.element));
}
