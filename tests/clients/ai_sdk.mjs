// SPDX-License-Identifier: Apache-2.0
// Vercel's AI SDK over each of the APIs that it speaks. Needs the scripted model.
import assert from 'node:assert/strict';
import {address, library} from './client.mjs';
import {callText, city, finalText, reasoning} from './scripted_model.mjs';

const {generateObject, generateText, stepCountIs, streamObject, streamText, tool} = library('ai');
const {createOpenAI} = library('@ai-sdk/openai');
const {createOpenAICompatible} = library('@ai-sdk/openai-compatible');
const {createAnthropic} = library('@ai-sdk/anthropic');
const {z} = library('zod');

globalThis.AI_SDK_LOG_WARNINGS = false;
const openai = createOpenAI({baseURL: `${address}/v1`, apiKey: 'none'});
const anthropic = createAnthropic({baseURL: `${address}/v1`, apiKey: 'none'});
const compatible = createOpenAICompatible({
  name: 'heddle', baseURL: `${address}/v1`, supportsStructuredOutputs: true, includeUsage: true,
});
const schema = z.object({city: z.string(), days: z.number()});
const models = {
  responses: openai.responses('scripted'), chat: openai.chat('scripted'), compatible: compatible('scripted'),
  messages: anthropic('scripted'),
};

for (const [name, model] of Object.entries(models)) {
  const asked = [];
  const options = {
    model, maxRetries: 0, maxOutputTokens: 500, prompt: 'WEATHER?', stopWhen: stepCountIs(3),
    tools: {
      weather: tool({
        description: 'The weather of a city', inputSchema: z.object({city: z.string()}),
        execute: async (input) => { asked.push(input); return 'Rain, 11 °C'; },
      }),
    },
  };
  const generated = await generateText(options);
  assert.equal(generated.text, finalText, name);
  assert.equal(generated.steps[0].text, callText, name);
  const streamed = streamText({...options, onError: ({error}) => { throw error; }});
  assert.equal(await streamed.text, finalText, name);
  const [first] = await streamed.steps;
  assert.equal(first.text, callText, name);
  assert.equal(first.finishReason, 'tool-calls', name);
  assert.ok((await streamed.totalUsage).outputTokens > 20, name);
  assert.deepEqual(asked, [{city: 'Paris'}, {city: 'Paris'}], name);
  // Chats over OpenAI's own provider have no reasoning; the Responses' is of summaries.
  if (name === 'compatible' || name === 'messages') assert.equal(first.reasoningText, reasoning, name);

  const form = {
    model, schema, maxRetries: 0, maxOutputTokens: 500, prompt: 'JSON, please',
    providerOptions: {anthropic: {structuredOutputMode: 'outputFormat'}},
  };
  assert.deepEqual((await generateObject(form)).object, city, name);
  const {object, partialObjectStream} = streamObject({...form, onError: ({error}) => { throw error; }});
  let last = null;
  for await (const partial of partialObjectStream) last = partial;
  assert.deepEqual(last, city, name);
  assert.deepEqual(await object, city, name);
  if (name === 'messages') {
    const byTool = {...form, prompt: 'OBJECT, please', providerOptions: {anthropic: {structuredOutputMode: 'jsonTool'}}};
    assert.deepEqual((await generateObject(byTool)).object, city, name);
    const streamed = streamObject({...byTool, onError: ({error}) => { throw error; }});
    for await (const partial of streamed.partialObjectStream) last = partial;
    assert.deepEqual(last, city, name);
  }
}
