// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import {address, library, question} from './client.mjs';

const OpenAI = library('openai').OpenAI;
const client = new OpenAI({baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0});
const model = 'heddle-tiny';
const greedy = {model, temperature: 0};

const models = await client.models.list();
assert.equal(models.data.length, 1);

// Chat, whole and streamed: one text.
const whole = await client.chat.completions.create({...greedy, messages: question, max_tokens: 16});
assert.equal(whole.choices[0].message.role, 'assistant');
assert.equal(whole.usage.completion_tokens, 16);
let text = '';
let usage = null;
const stream = await client.chat.completions.create({
  ...greedy, messages: question, max_tokens: 16, stream: true, stream_options: {include_usage: true},
});
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? '';
  usage = chunk.usage ?? usage;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(usage.completion_tokens, 16);

const logprobs = await client.chat.completions.create(
    {...greedy, messages: question, max_tokens: 2, logprobs: true, top_logprobs: 3});
assert.equal(logprobs.choices[0].logprobs.content[0].top_logprobs.length, 3);

const completion = await client.completions.create({...greedy, prompt: 'Once upon a time', max_tokens: 4});
assert.equal(completion.choices[0].finish_reason, 'length');

// An answer in a form, and a call that is forced, whole and streamed.
const schema = {
  type: 'object', additionalProperties: false, required: ['answer'],
  properties: {answer: {enum: ['yes', 'no']}},
};
const formed = await client.chat.completions.create({
  ...greedy, messages: question, max_tokens: 64,
  response_format: {type: 'json_schema', json_schema: {name: 'answer', strict: true, schema}},
});
assert.match(JSON.parse(formed.choices[0].message.content).answer, /^(yes|no)$/);
const calling = {
  ...greedy, messages: question, max_tokens: 200, tool_choice: 'required', parallel_tool_calls: false,
  tools: [{type: 'function', function: {name: 'answer', strict: true, parameters: schema}}],
};
const called = await client.chat.completions.create(calling);
assert.equal(called.choices[0].finish_reason, 'tool_calls');
const [call] = called.choices[0].message.tool_calls;
assert.equal(call.function.name, 'answer');
assert.match(JSON.parse(call.function.arguments).answer, /^(yes|no)$/);
let calledArguments = '';
for await (const chunk of await client.chat.completions.create({...calling, stream: true})) {
  calledArguments += chunk.choices[0]?.delta?.tool_calls?.[0]?.function?.arguments ?? '';
}
assert.deepEqual(JSON.parse(calledArguments), JSON.parse(call.function.arguments));
const answered = await client.chat.completions.create({
  ...greedy, max_tokens: 4,
  messages: [...question, called.choices[0].message, {role: 'tool', tool_call_id: call.id, content: 'done'}],
});
assert.equal(answered.choices[0].message.role, 'assistant');

// Responses, whole and streamed, and going on from one.
const input = question[0].content;
const response = await client.responses.create({...greedy, input, max_output_tokens: 16});
assert.equal(response.status, 'incomplete');
assert.equal(response.output_text, whole.choices[0].message.content);
const kept = await client.responses.retrieve(response.id);
assert.equal(kept.id, response.id);
const next = await client.responses.create(
    {...greedy, input: 'Go on.', previous_response_id: response.id, max_output_tokens: 2});
assert.equal(next.previous_response_id, response.id);
text = '';
let last = null;
for await (const event of await client.responses.create(
    {...greedy, input, max_output_tokens: 16, stream: true})) {
  if (event.type === 'response.output_text.delta') text += event.delta;
  last = event;
}
assert.equal(text, response.output_text);
assert.equal(last.type, 'response.incomplete');

// Errors are those of the library, with their fields.
await assert.rejects(client.chat.completions.create({model, messages: []}), (error) => {
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.equal(error.param, 'messages');
  assert.equal(typeof error.code, 'string');
  return true;
});
await assert.rejects(client.models.retrieve('no-such-model'), OpenAI.NotFoundError);
await assert.rejects(
    client.uploads.create({filename: 'a', purpose: 'batch', bytes: 1, mime_type: 'text/plain'}),
    (error) => error.status === 501);

// A batch of two requests, of which one is wrong.
const {toFile} = library('openai');
const line = (custom_id, body) => JSON.stringify({custom_id, method: 'POST', url: '/v1/chat/completions', body});
const requests = [
  line('good', {...greedy, messages: question, max_tokens: 16}), line('bad', {...greedy, messages: []}),
].join('\n');
const file = await client.files.create({file: await toFile(Buffer.from(requests), 'in.jsonl'), purpose: 'batch'});
let batch = await client.batches.create(
    {input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h'});
while (!['completed', 'failed'].includes(batch.status)) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  batch = await client.batches.retrieve(batch.id);
}
assert.deepEqual(batch.request_counts, {total: 2, completed: 1, failed: 1});
const output = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
assert.equal(output.custom_id, 'good');
assert.equal(output.response.body.choices[0].message.content, whole.choices[0].message.content);
assert.equal(JSON.parse(await (await client.files.content(batch.error_file_id)).text()).response.status_code, 400);
assert.equal((await client.batches.list()).data[0].id, batch.id);
assert.ok((await client.files.delete(file.id)).deleted);

// A stream that its reader leaves.
const left = await client.chat.completions.create({...greedy, messages: question, stream: true});
for await (const chunk of left) {
  assert.ok(chunk.id);
  break;
}
