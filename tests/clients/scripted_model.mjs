// SPDX-License-Identifier: Apache-2.0
// Writes a tiny Llama checkpoint that plays fixed texts: the last character of the prompt picks the text, and its
// pieces follow each other, a token each. Attention and MLP are zero, the embedding is the identity, and row t of the
// head is the one-hot of t's only successor. Prompts are one token a byte.
//
//   node scripted_model.mjs FOLDER
//
// The template picks: W calls a tool, T answers after its result, J is JSON, E, O and P are calls of `extract`, `json`
// and `apply_patch`. All reason first. A question picks by a word in capitals.
import {closeSync, mkdirSync, openSync, realpathSync, writeFileSync, writeSync} from 'node:fs';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

export const reasoning = 'Let me think about "it".\n- first, the city';
export const callText = 'I will look that up.';
export const finalText = 'It rains in Paris: 11 °C. 🌧';
export const city = {city: 'Rome', days: 3};
export const patch = '*** Begin Patch\n*** Add File: a.txt\n+"hello"\n*** End Patch';

// With blanks, as models write calls and forms want them.
const spaced = (value) => JSON.stringify(value, null, 1).replace(/\n */g, ' ').replace(/([{[]) /g, '$1').replace(/ ([}\]])/g, '$1');
const call = (name, args) => `<tool_call>\n${spaced({name, arguments: args})}\n</tool_call>`;
const think = `<think>${reasoning}</think>`;
const scripts = {
  W: `${think}${callText}${call('weather', {city: 'Paris'})}`,
  T: `<think>So it rains there.</think>${finalText}`,
  J: `<think>They want JSON.</think>${spaced(city)}`,
  E: `<think>They want facts.</think>${call('extract', city)}`,
  O: `<think>An object.</think>${call('json', city)}`,
  P: `<think>A patch, then.</think>${call('apply_patch', {input: patch})}`,
};

// The script is that of the word in the last question; after a tool's result, the answer.
export const template = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{{- m.content if m.content is string else (m.content | tojson) }}
{%- for t in m.tool_calls or [] %}[call {{ t.function.name }} {{ t.function.arguments | tojson }}]{% endfor %}
{{- '<|im_end|>\\n' }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- set last = messages[-1] %}{% set asked = last.content if last.content is string else (last.content | tojson) %}
{%- if last.role == 'tool' %}T{% elif 'JSON' in asked %}J{% elif 'EXTRACT' in asked %}E
{%- elif 'OBJECT' in asked %}O{% elif 'PATCH' in asked %}P{% elif 'WEATHER' in asked %}W{% else %}T{% endif %}{% endif %}`;

const endOfText = 256;
const special = ['<|eot|>', '<|bos|>', '<|im_start|>', '<|im_end|>'];
const firstPiece = 264;

// The letters that byte-level BPE writes for bytes.
function byteLetters() {
  const letters = new Map();
  const others = [];
  for (let byte = 0; byte < 256; ++byte) {
    const kept = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte < 0xad) || byte >= 0xae;
    if (kept) letters.set(byte, String.fromCodePoint(byte)); else others.push(byte);
  }
  others.forEach((byte, index) => letters.set(byte, String.fromCodePoint(256 + index)));
  return letters;
}

const letters = byteLetters();
const spell = (bytes) => [...bytes].map((byte) => letters.get(byte)).join('');

// Cuts a text into pieces of a few bytes that no other piece equals, each as its spelling.
function cut(text, taken) {
  const bytes = Buffer.from(text);
  const pieces = [];
  const isTaken = (piece) => taken.has(piece) || pieces.includes(piece);
  const sizes = [2, 3, 5, 8];
  for (let place = 0, turn = 0; place < bytes.length; ++turn) {
    let size = sizes[turn % sizes.length];
    while (place + size <= bytes.length && isTaken(spell(bytes.subarray(place, place + size)))) ++size;
    let piece = spell(bytes.subarray(place, place + size));
    while (isTaken(piece) && pieces.length > 0) piece = pieces.pop() + piece;  // the rest joins the piece before
    if (isTaken(piece)) throw new Error(`${text} is a part of another script`);
    pieces.push(piece);
    place += size;
  }
  return pieces;
}

function matrix(rows, columns, ones = []) {
  const data = new Uint16Array(rows * columns);  // bf16
  for (const [row, column] of ones) data[row * columns + column] = 0x3f80;
  return {shape: [rows, columns], data};
}

function writeSafetensors(path, tensors) {
  const header = {};
  let offset = 0;
  for (const [name, {shape, data}] of Object.entries(tensors)) {
    header[name] = {dtype: 'BF16', shape, data_offsets: [offset, offset + data.byteLength]};
    offset += data.byteLength;
  }
  let text = JSON.stringify(header);
  text += ' '.repeat((8 - (text.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const file = openSync(path, 'w');
  for (const part of [length, Buffer.from(text), ...Object.values(tensors).map(({data}) => Buffer.from(data.buffer))]) {
    writeSync(file, part);
  }
  closeSync(file);
}

export function writeModel(folder, {texts = scripts, chatTemplate = template, contextLength = 8192} = {}) {
  const vocabulary = new Map();
  for (let byte = 0; byte < 256; ++byte) vocabulary.set(spell([byte]), byte);
  const taken = new Set(vocabulary.keys());
  const successor = new Map();
  for (const [start, text] of Object.entries(texts)) {
    let previous = start.codePointAt(0);
    for (const piece of cut(text, taken)) {
      const token = firstPiece + vocabulary.size - 256;
      taken.add(piece);
      vocabulary.set(piece, token);
      successor.set(previous, token);
      previous = token;
    }
    successor.set(previous, endOfText);
  }
  const size = Math.ceil((firstPiece + vocabulary.size - 256) / 64) * 64;
  const hidden = Math.max(1024, size);
  const ids = [...Array(size).keys()];
  const ones = {shape: [hidden], data: new Uint16Array(hidden).fill(0x3f80)};
  const layer = 'model.layers.0.';
  mkdirSync(folder, {recursive: true});
  writeSafetensors(join(folder, 'model.safetensors'), {
    'model.embed_tokens.weight': matrix(size, hidden, ids.map((id) => [id, id])),
    'model.norm.weight': ones,
    'lm_head.weight': matrix(size, hidden, ids.map((id) => [successor.get(id) ?? endOfText, id])),
    [`${layer}input_layernorm.weight`]: ones,
    [`${layer}post_attention_layernorm.weight`]: ones,
    [`${layer}self_attn.q_proj.weight`]: matrix(128, hidden),
    [`${layer}self_attn.k_proj.weight`]: matrix(64, hidden),
    [`${layer}self_attn.v_proj.weight`]: matrix(64, hidden),
    [`${layer}self_attn.o_proj.weight`]: matrix(hidden, 128),
    [`${layer}mlp.gate_proj.weight`]: matrix(64, hidden),
    [`${layer}mlp.up_proj.weight`]: matrix(64, hidden),
    [`${layer}mlp.down_proj.weight`]: matrix(hidden, 64),
  });
  const byteLevel = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true};
  const files = {
    config: {
      architectures: ['LlamaForCausalLM'], model_type: 'llama', vocab_size: size, hidden_size: hidden,
      intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 64,
      hidden_act: 'silu', rms_norm_eps: 1e-6, rope_theta: 10000, max_position_embeddings: contextLength,
      tie_word_embeddings: false, torch_dtype: 'bfloat16', bos_token_id: endOfText + 1, eos_token_id: endOfText,
    },
    generation_config: {eos_token_id: endOfText},
    tokenizer_config: {tokenizer_class: 'Qwen2Tokenizer', eos_token: special[0], chat_template: chatTemplate},
    tokenizer: {
      version: '1.0', truncation: null, padding: null, normalizer: null, post_processor: null,
      added_tokens: special.map((content, index) => ({
        id: endOfText + index, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true,
      })),
      pre_tokenizer: byteLevel, decoder: {...byteLevel, add_prefix_space: true},
      model: {
        type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
        fuse_unk: false, byte_fallback: false, vocab: Object.fromEntries(vocabulary), merges: [],
      },
    },
  };
  for (const [name, value] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.json`), JSON.stringify(value));
  }
}

if (import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) writeModel(process.argv[2]);
