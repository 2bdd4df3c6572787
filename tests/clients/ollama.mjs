// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {address, library, question} from './client.mjs';

const {Ollama} = library('ollama');
const client = new Ollama({host: address});
const model = 'heddle-tiny';
const options = {temperature: 0, num_predict: 16};

const whole = await client.chat({model, messages: question, options});
assert.equal(whole.done_reason, 'length');
assert.equal(whole.eval_count, 16);
let text = '';
for await (const part of await client.chat({model, messages: question, options, stream: true})) {
  text += part.message.content;
}
assert.equal(text, whole.message.content);

const generated = await client.generate({model, prompt: question[0].content, options});
assert.equal(generated.response, whole.message.content);

const format = {
  type: 'object', additionalProperties: false, required: ['answer'],
  properties: {answer: {enum: ['yes', 'no']}},
};
const formed = await client.chat({model, messages: question, format, options: {temperature: 0, num_predict: 64}});
assert.match(JSON.parse(formed.message.content).answer, /^(yes|no)$/);

assert.equal((await client.list()).models[0].name, model);
assert.equal((await client.ps()).models[0].model, model);
assert.ok((await client.show({model})).capabilities.includes('completion'));
await assert.rejects(client.chat({model, messages: [{role: 'wizard', content: 'x'}]}), /role/);
await assert.rejects(client.pull({model}), /does not serve/);
