// SPDX-License-Identifier: Apache-2.0
// Anthropic's library puts streams together itself and runs tools. Needs the scripted model.
import assert from 'node:assert/strict';
import {address, library} from './client.mjs';
import {callText, city, finalText, reasoning} from './scripted_model.mjs';

const {Anthropic} = library('@anthropic-ai/sdk');
const client = new Anthropic({baseURL: address, apiKey: 'none', maxRetries: 0});
const weather = {
  name: 'weather', description: 'The weather of a city',
  input_schema: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
};
const question = {role: 'user', content: 'WEATHER?'};
const call = {model: 'scripted', max_tokens: 500, messages: [question], tools: [weather]};

const stream = client.messages.stream(call);
let thought = '';
let json = '';
stream.on('thinking', (delta) => { thought += delta; });
stream.on('inputJson', (delta) => { json += delta; });
const message = await stream.finalMessage();
assert.equal(thought, reasoning);
assert.deepEqual(JSON.parse(json), {city: 'Paris'});
assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text', 'tool_use']);
assert.equal(message.content[1].text, callText);
assert.deepEqual(message.content[2].input, {city: 'Paris'});
assert.equal(message.stop_reason, 'tool_use');
const whole = await client.messages.create(call);
const withoutId = ({id, ...rest}) => rest;
assert.deepEqual(message.content.map(withoutId), whole.content.map(withoutId));

// The next turn, of the blocks as they came.
const result = {type: 'tool_result', tool_use_id: message.content[2].id, content: [{type: 'text', text: 'Rain, 11 °C'}]};
const next = await client.messages.stream({
  ...call, messages: [question, {role: 'assistant', content: message.content}, {role: 'user', content: [result]}],
}).finalText();
assert.equal(next, finalText);

// The library's own loop of tools, whole and streamed.
for (const isStream of [false, true]) {
  const asked = [];
  const runner = client.beta.messages.toolRunner({
    ...call, stream: isStream,
    tools: [{...weather, type: 'custom', parse: (input) => input, run: (input) => { asked.push(input); return 'Rain'; }}],
  });
  const last = await runner.runUntilDone();
  assert.equal(last.content.at(-1).text, finalText);
  assert.deepEqual(asked, [{city: 'Paris'}]);
}

// A form.
const formed = await client.messages.create({
  model: 'scripted', max_tokens: 500, messages: [{role: 'user', content: 'JSON, please'}],
  output_config: {
    format: {
      type: 'json_schema',
      schema: {
        type: 'object', additionalProperties: false, required: ['city', 'days'],
        properties: {city: {type: 'string'}, days: {type: 'number'}},
      },
    },
  },
});
assert.deepEqual(JSON.parse(formed.content.at(-1).text), city);

// The sentences by which clients know that they have to ask for less.
const refusal = async (body) => {
  let message = '';
  await assert.rejects(client.messages.stream({...call, ...body}).finalMessage(), (error) => {
    message = error.error.error.message;
    return error instanceof Anthropic.BadRequestError;
  });
  return message;
};
const fit = /^input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)/;
const [, used, asked, limit] = (await refusal({max_tokens: 32000})).match(fit).map(Number);
assert.equal(asked, 32000);
assert.equal((await client.messages.create({...call, max_tokens: limit - used})).stop_reason, 'tool_use');
assert.match(await refusal({messages: [{role: 'user', content: 'x'.repeat(limit)}]}),
    new RegExp(`^prompt is too long: \\d+ tokens > ${limit} maximum$`));
