// SPDX-License-Identifier: Apache-2.0
// The peer's side of gguf_peer.py, for node in a folder with the package node-llama-cpp:
//
//   node gguf_peer.mjs FILE.gguf greedy NUM_TOKENS < prompts    texts that follow prompts
//   node gguf_peer.mjs FILE.gguf probabilities < texts          what follows each part of a text
//
// Standard input is a JSON list: of prompts, or of {prompt, ids} with the ids that followed it. The
// answer is a JSON list: {prompt_ids, ids, text} of each prompt, or for each of the ids a list of
// probabilities by token.
import {getLlama, LlamaLogLevel} from "node-llama-cpp";
import {readFileSync} from "node:fs";

const [file, what, count] = process.argv.slice(2);
const input = JSON.parse(readFileSync(0, "utf8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 1});
const model = await llama.loadModel({modelPath: file});
const answers = [];
for (const item of input) {
  const context = await model.createContext({contextSize: 2048, batchSize: 512, flashAttention: false});
  const sequence = context.getSequence();
  if (what === "greedy") {
    const promptIds = model.tokenize(item, true);
    const ids = [];
    for await (const token of sequence.evaluate(promptIds, {temperature: 0, yieldEogToken: true})) {
      if (model.isEogToken(token)) break;
      ids.push(token);
      if (ids.length >= Number(count)) break;
    }
    answers.push({prompt_ids: promptIds, ids, text: model.detokenize(ids)});
  } else {
    const tokens = [...model.tokenize(item.prompt, true), ...item.ids];
    const first = tokens.length - item.ids.length - 1;
    const asked = {generateNext: {probabilities: true, options: {temperature: 1, topK: 0, topP: 1, minP: 0}}};
    const parts = tokens.slice(0, -1).map((token, i) => (i >= first ? [token, asked] : token));
    const results = await sequence.controlledEvaluate(parts);
    answers.push(
      results.slice(first).map((result) => Object.fromEntries(result.next.probabilities))
    );
  }
  await context.dispose();
}
await new Promise((written) => process.stdout.write(JSON.stringify(answers), written));
process.exit(0);
