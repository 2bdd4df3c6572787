// SPDX-License-Identifier: Apache-2.0
// LangChain's chat model over chat completions and Responses. Needs the scripted model.
import assert from 'node:assert/strict';
import {address, library} from './client.mjs';
import {callText, city, finalText} from './scripted_model.mjs';

const {ChatOpenAI} = library('@langchain/openai');
const {HumanMessage, ToolMessage} = library('@langchain/core/messages');
const {tool} = library('@langchain/core/tools');
const {z} = library('zod');

const weather = tool(async () => 'Rain, 11 °C', {
  name: 'weather', description: 'The weather of a city', schema: z.object({city: z.string()}),
});
const schema = z.object({city: z.string(), days: z.number()});

for (const useResponsesApi of [false, true]) {
  const model = new ChatOpenAI({
    model: 'scripted', apiKey: 'none', maxRetries: 0, useResponsesApi, configuration: {baseURL: `${address}/v1`},
  });
  for (const [method, question] of [['jsonSchema', 'JSON, please'], ['functionCalling', 'EXTRACT it']]) {
    const structured = model.withStructuredOutput(schema, {name: 'extract', method});
    assert.deepEqual(await structured.invoke(question), city, method);
  }
  const withTools = model.bindTools([weather]);
  const messages = [new HumanMessage('WEATHER?')];
  const whole = await withTools.invoke(messages);
  assert.equal(whole.text, callText);
  assert.deepEqual(whole.tool_calls.map(({name, args}) => ({name, args})), [{name: 'weather', args: {city: 'Paris'}}]);
  let streamed = null;
  for await (const chunk of await withTools.stream(messages)) {
    streamed = streamed === null ? chunk : streamed.concat(chunk);
  }
  assert.equal(streamed.text, callText);
  assert.deepEqual(streamed.tool_calls[0].args, {city: 'Paris'});
  const result = new ToolMessage({content: 'Rain, 11 °C', tool_call_id: whole.tool_calls[0].id});
  assert.equal((await withTools.invoke([...messages, whole, result])).text, finalText);
  assert.equal((await withTools.invoke([...messages, streamed, result])).text, finalText);
}
