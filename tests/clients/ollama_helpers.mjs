// SPDX-License-Identifier: Apache-2.0
// Ollama's library with reasoning, calls, forms and logprobs. Needs the scripted model.
import assert from 'node:assert/strict';
import {address, library} from './client.mjs';
import {callText, city, finalText, reasoning} from './scripted_model.mjs';

const {Ollama} = library('ollama');
const client = new Ollama({host: address});
const weather = {
  type: 'function',
  function: {
    name: 'weather', description: 'The weather of a city',
    parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
  },
};
const question = {role: 'user', content: 'WEATHER?'};
const call = {model: 'scripted', messages: [question], tools: [weather], think: true};

const {message} = await client.chat(call);
assert.equal(message.thinking, reasoning);
assert.equal(message.content, callText);
assert.equal(message.tool_calls[0].function.name, 'weather');
assert.deepEqual(message.tool_calls[0].function.arguments, {city: 'Paris'});
const parts = {thinking: '', content: '', calls: []};
for await (const part of await client.chat({...call, stream: true})) {
  parts.thinking += part.message.thinking ?? '';
  parts.content += part.message.content;
  parts.calls.push(...part.message.tool_calls ?? []);
}
assert.equal(parts.thinking, message.thinking);
assert.equal(parts.content, message.content);
assert.deepEqual(parts.calls.map((one) => one.function), message.tool_calls.map((one) => one.function));

const next = await client.chat({
  ...call, messages: [question, message, {role: 'tool', tool_name: 'weather', content: 'Rain, 11 °C'}],
});
assert.equal(next.message.content, finalText);

const format = {
  type: 'object', required: ['city', 'days'], properties: {city: {type: 'string'}, days: {type: 'number'}},
};
const formed = await client.chat({model: 'scripted', messages: [{role: 'user', content: 'JSON, please'}], format});
assert.deepEqual(JSON.parse(formed.message.content), city);

// Logprobs of the content, which are the same streamed and whole; a limit beyond the context is cut.
const likely = {
  model: 'scripted', prompt: 'Hello', logprobs: true, top_logprobs: 2, think: 'high', options: {num_predict: 100000},
};
const generated = await client.generate(likely);
assert.equal(generated.response, finalText);
const bytes = Buffer.concat(generated.logprobs.map((one) => Buffer.from(one.bytes)));
assert.ok(bytes.toString().endsWith(finalText));  // its first token may begin in the closing tag
assert.equal(generated.logprobs[0].top_logprobs.length, 2);
const streamed = [];
for await (const part of await client.generate({...likely, stream: true})) streamed.push(...part.logprobs ?? []);
assert.deepEqual(streamed, generated.logprobs);
