// SPDX-License-Identifier: Apache-2.0
// The sampling fields. An empty one is not sent, and shows the model's own value.
import {getJson} from './api.js';
import {byId} from './dom.js';

const kNumbers = ['temperature', 'top_p', 'top_k', 'min_p', 'frequency_penalty', 'presence_penalty',
                  'repetition_penalty', 'max_completion_tokens', 'seed'];
const kTopLogprobs = 5;

export const model = {name: '', known: false};

const fields = () => byId('sampling').elements;

// The fields of a request.
export function sampling() {
  const body = {};
  for (const name of kNumbers) {
    if (fields()[name].value !== '') body[name] = Number(fields()[name].value);
  }
  if (fields().ignore_eos.checked) body.ignore_eos = true;
  if (fields().stop.value) body.stop = fields().stop.value;
  const reasoning = byId('reasoning').value;
  if (reasoning) body.reasoning = {enabled: reasoning === 'on'};
  if (fields().probabilities.checked) Object.assign(body, {logprobs: true, top_logprobs: kTopLogprobs});
  return body;
}

// Reads the model's name, its sampling and whether its template can turn reasoning on and off.
export async function readModel() {
  const [models, facts] = await Promise.all([getJson('v1/models'), getJson('model_info')]);
  model.name = models.data[0]?.id ?? '';
  model.known = true;
  byId('model-name').textContent = model.name;
  byId('model-name').title = `${facts.architectures[0]}, context of ${facts.max_model_len} tokens`;
  for (const [name, value] of Object.entries(facts.default_sampling ?? {})) {
    if (fields()[name]) fields()[name].placeholder = name === 'top_k' && value < 1 ? 'off' : String(value);
  }
  byId('reasoning-field').hidden = !facts.has_reasoning_switch;
  if (!facts.has_reasoning_switch) byId('reasoning').value = '';
}
