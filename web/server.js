// SPDX-License-Identifier: Apache-2.0
// The model and every setting that the server runs with.
import {getJson} from './api.js';
import {byId, bytes, count, html, short} from './dom.js';

const kPeriodMs = 5000;
let readAt = -Infinity;
let settings = [];

const gib = (value) => bytes(value * 2 ** 30);

function showFacts(info, model) {
  const state = info.internal_states[0];
  const memory = state.memory_usage;
  const facts = [
    ['Model', info.served_model_name], ['Architecture', model.architectures[0]],
    ['Parameters', short(model.num_parameters)], ['Weights', `${model.dtype}, ${gib(memory.weight)}`],
    ['Device', info.device], ['Context', `${count(model.max_model_len)} tokens`],
    ['KV capacity', `${count(memory.token_capacity)} tokens`],
    ['Requests at once', count(state.effective_max_running_requests_per_dp)],
    ['Steps so far', count(state.num_steps)], ['Prompt tokens', count(state.num_prompt_tokens)],
    ['Output tokens', count(state.num_output_tokens)], ['Version', info.version],
  ];
  byId('facts').replaceChildren(...facts.map(([name, value]) => html(
    'div', {}, html('dt', {}, name), html('dd', {}, value))));
}

function valueCell(value) {
  if (value === null || value === '' || (Array.isArray(value) && value.length === 0)) {
    return html('td', {class: 'unset'}, 'not set');
  }
  if (typeof value === 'boolean') return html('td', {}, value ? 'yes' : 'no');
  if (Array.isArray(value)) return html('td', {}, value.join(', '));
  return html('td', {}, typeof value === 'object' ? JSON.stringify(value) : String(value));
}

function showSettings() {
  const wanted = byId('filter').value.trim().toLowerCase();
  byId('settings').replaceChildren(...settings
    .filter(([name, value]) => `${name} ${value}`.toLowerCase().includes(wanted))
    .map(([name, value]) => html('tr', {}, html('td', {}, name), valueCell(value))));
}

export async function refresh() {
  if (performance.now() - readAt < kPeriodMs) return;
  const [info, model] = await Promise.all([getJson('get_server_info'), getJson('get_model_info')]);
  readAt = performance.now();
  showFacts(info, model);
  settings = Object.entries(info).filter(([name]) => name !== 'internal_states');
  showSettings();
}

export function setUp() {
  byId('filter').addEventListener('input', showSettings);
}
