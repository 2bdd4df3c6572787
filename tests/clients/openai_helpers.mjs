// SPDX-License-Identifier: Apache-2.0
// OpenAI's library puts streams together itself, and throws where an event is missing. Needs the scripted model.
import assert from 'node:assert/strict';
import {address, library} from './client.mjs';
import {callText, city, finalText, patch, reasoning} from './scripted_model.mjs';

const OpenAI = library('openai').OpenAI;
const {zodFunction, zodResponseFormat, zodTextFormat} = {
  ...library('openai/helpers/zod'),
};
const {z} = library('zod');
const client = new OpenAI({baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0});
const model = 'scripted';
const City = z.object({city: z.string(), days: z.number()});
const weather = {
  type: 'function', name: 'weather', description: 'The weather of a city', strict: false,
  parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
};

// Responses: reasoning, text and a call, streamed and whole.
const stream = client.responses.stream({model, input: 'WEATHER?', tools: [weather]});
const seen = [];
stream.on('response.reasoning_text.delta', ({delta}) => seen.push(delta));
stream.on('response.output_text.delta', ({snapshot}) => assert.ok(callText.startsWith(snapshot)));
const response = await stream.finalResponse();
assert.equal(seen.join(''), reasoning);
assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'message', 'function_call']);
assert.equal(response.output[0].content[0].text, reasoning);
assert.equal(response.output_text, callText);
assert.deepEqual(JSON.parse(response.output[2].arguments), {city: 'Paris'});
const whole = await client.responses.create({model, input: 'WEATHER?', tools: [weather]});
const shape = ({type, status, content, name, arguments: args}) => ({type, status, text: content?.[0].text, name, args});
assert.deepEqual(response.output.map(shape), whole.output.map(shape));

// The same stream by its id, and its end alone.
const again = await client.responses.stream({response_id: response.id}).finalResponse();
assert.deepEqual(again.output, response.output);
const numbers = [];
for await (const event of await client.responses.retrieve(response.id, {stream: true, starting_after: 4})) {
  numbers.push(event.sequence_number);
}
assert.equal(numbers[0], 5);

// A response in the background goes on without its reader, who comes back to it.
let id = null;
let number = -1;
const background = {model, input: 'WEATHER?', tools: [weather], background: true, stream: true};
for await (const event of await client.responses.create(background)) {
  id ??= event.response.id;
  number = event.sequence_number;
  if (number === 5) break;
}
let last = null;
for await (const event of await client.responses.retrieve(id, {stream: true, starting_after: number})) {
  assert.equal(event.sequence_number, ++number);
  last = event;
}
assert.equal(last.type, 'response.completed');
assert.deepEqual(last.response.output.map(shape), whole.output.map(shape));

// The next turn, of the items as they came, and by the id alone.
const output = {type: 'function_call_output', call_id: response.output[2].call_id, output: 'Rain, 11 °C'};
const next = await client.responses.stream({
  model, tools: [weather], input: [{role: 'user', content: 'WEATHER?'}, ...response.output, output],
}).finalResponse();
assert.equal(next.output_text, finalText);
const byId = await client.responses.create({model, tools: [weather], input: [output], previous_response_id: response.id});
assert.equal(byId.output_text, finalText);
assert.equal(byId.usage.input_tokens, next.usage.input_tokens);

// A custom tool, and one of a namespace.
const tools = [
  {type: 'custom', name: 'apply_patch', description: 'Edits files'},
  {type: 'namespace', name: 'mcp__sky', description: 'The sky', tools: [weather]},
];
let input = '';
const patching = client.responses.stream({model, input: 'PATCH it', tools});
patching.on('response.custom_tool_call_input.delta', ({delta}) => { input += delta; });
const patched = (await patching.finalResponse()).output.at(-1);
assert.equal(patched.type, 'custom_tool_call');
assert.equal(patched.name, 'apply_patch');
assert.equal(patched.input, patch);
assert.equal(input, patch);
const spaced = (await client.responses.stream({model, input: 'WEATHER?', tools}).finalResponse()).output.at(-1);
assert.equal(spaced.name, 'weather');
assert.equal(spaced.namespace, 'mcp__sky');

// A form, parsed by the library.
const formed = await client.responses.stream({
  model, input: 'JSON, please', text: {format: zodTextFormat(City, 'city')},
}).finalResponse();
assert.deepEqual(formed.output_parsed, city);
const counted = await client.responses.inputTokens.count({model, input: 'WEATHER?', tools: [weather]});
assert.equal(counted.input_tokens, whole.usage.input_tokens);

// Chat: the helper for streams, the one that calls tools, the one that parses.
const messages = [{role: 'user', content: 'WEATHER?'}];
const chatTool = {type: 'function', function: {name: 'weather', parameters: weather.parameters}};
const completion = await client.chat.completions.stream({model, messages, tools: [chatTool]}).finalChatCompletion();
assert.equal(completion.choices[0].finish_reason, 'tool_calls');
assert.equal(completion.choices[0].message.content, callText);
assert.deepEqual(JSON.parse(completion.choices[0].message.tool_calls[0].function.arguments), {city: 'Paris'});
for (const isStream of [false, true]) {
  const asked = [];
  const runner = client.chat.completions.runTools({
    model, messages, stream: isStream,
    tools: [{
      type: 'function',
      function: {
        name: 'weather', parameters: weather.parameters, parse: JSON.parse,
        function: (args) => { asked.push(args); return 'Rain, 11 °C'; },
      },
    }],
  });
  assert.equal(await runner.finalContent(), finalText);
  assert.deepEqual(asked, [{city: 'Paris'}]);
}
const parsed = await client.chat.completions.parse({
  model, messages: [{role: 'user', content: 'JSON, please'}], response_format: zodResponseFormat(City, 'city'),
});
assert.deepEqual(parsed.choices[0].message.parsed, city);
const parsedStream = await client.chat.completions.stream({
  model, messages: [{role: 'user', content: 'JSON, please'}], response_format: zodResponseFormat(City, 'city'),
}).finalChatCompletion();
assert.deepEqual(parsedStream.choices[0].message.parsed, city);
const extracted = await client.chat.completions.parse({
  model, messages: [{role: 'user', content: 'EXTRACT it'}], tool_choice: 'required',
  tools: [zodFunction({name: 'extract', parameters: City})],
});
assert.deepEqual(extracted.choices[0].message.tool_calls[0].function.parsed_arguments, city);
