// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {address, library, question} from './client.mjs';

const Anthropic = library('@anthropic-ai/sdk').Anthropic;
const client = new Anthropic({baseURL: address, apiKey: 'none', maxRetries: 0});
const call = {model: 'heddle-tiny', messages: question, max_tokens: 16, temperature: 0};

const message = await client.messages.create(call);
assert.equal(message.type, 'message');
assert.equal(message.stop_reason, 'max_tokens');
assert.equal(message.usage.output_tokens, 16);
assert.equal(message.content[0].type, 'text');

// The library puts the events of a stream together itself.
const streamed = await client.messages.stream(call).finalMessage();
assert.equal(streamed.content[0].text, message.content[0].text);
assert.equal(streamed.stop_reason, 'max_tokens');
assert.equal(streamed.usage.output_tokens, 16);

// Routes that OpenAI's API has, too, in the form of this one.
const models = [];
for await (const model of client.models.list({limit: 1})) models.push(model);
assert.deepEqual(models.map(({id, type}) => [id, type]), [['heddle-tiny', 'model']]);
assert.ok(Date.parse(models[0].created_at) > 0);
assert.equal((await client.models.retrieve('heddle-tiny')).display_name, 'heddle-tiny');
await assert.rejects(client.models.retrieve('no-such-model'), (error) =>
    error instanceof Anthropic.NotFoundError && error.error.error.type === 'not_found_error');
await assert.rejects(client.messages.batches.list(), (error) => error.status === 501);

const count = await client.messages.countTokens({model: call.model, messages: question});
assert.equal(count.input_tokens, message.usage.input_tokens + message.usage.cache_read_input_tokens);

const tools = [{
  name: 'weather',
  description: 'The weather of a city',
  input_schema: {type: 'object', properties: {city: {type: 'string'}}},
}];
const results = [
  ...question,
  {role: 'assistant', content: [{type: 'tool_use', id: 'toolu_1', name: 'weather', input: {city: 'Paris'}}]},
  {role: 'user', content: [{type: 'tool_result', tool_use_id: 'toolu_1', content: 'Rain.'}]},
];
const after = await client.messages.create({...call, messages: results, tools});
assert.equal(after.role, 'assistant');

// A call that is forced, whole and streamed.
const forced = {
  ...call, max_tokens: 200, tool_choice: {type: 'tool', name: 'answer'},
  tools: [{
    name: 'answer',
    input_schema: {
      type: 'object', additionalProperties: false, required: ['answer'],
      properties: {answer: {enum: ['yes', 'no']}},
    },
  }],
};
const calling = await client.messages.create(forced);
assert.equal(calling.stop_reason, 'tool_use');
const use = calling.content.find((block) => block.type === 'tool_use');
assert.equal(use.name, 'answer');
assert.match(use.input.answer, /^(yes|no)$/);
const streamedCall = await client.messages.stream(forced).finalMessage();
assert.deepEqual(streamedCall.content.find((block) => block.type === 'tool_use').input, use.input);

await assert.rejects(client.messages.create({...call, max_tokens: 0}), (error) => {
  assert.ok(error instanceof Anthropic.BadRequestError);
  assert.equal(error.error.error.type, 'invalid_request_error');
  return true;
});
