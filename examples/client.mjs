#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Asks a running `heddle serve` and prints the answer as it comes; needs nothing but Node 18.
//
//   examples/client.mjs "Tell me a story about a cat." [http://127.0.0.1:30000]

// Yields the pieces of the answer's text.
async function* streamChat(url, question) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      messages: [{ role: "user", content: question }],
      temperature: 0,
      max_tokens: 32,
      stream: true,
    }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);

  // Server-sent events: "data: {...}", at last "data: [DONE]". A piece of the body may end anywhere.
  let rest = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line.startsWith("data: [DONE]")) continue;
      const event = JSON.parse(line.slice("data: ".length));
      if (event.error) throw new Error(event.error.message);
      for (const choice of event.choices) yield choice.delta.content ?? "";
    }
  }
}

const [question, url = "http://127.0.0.1:30000"] = process.argv.slice(2);
if (question === undefined) {
  console.error("usage: client.mjs QUESTION [URL]");
  process.exit(2);
}
for await (const piece of streamChat(url, question)) process.stdout.write(piece);
console.log();
