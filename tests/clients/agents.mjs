// SPDX-License-Identifier: Apache-2.0
// Claude Code and Codex, headless, against a scripted model of their own: each runs one command through its tool and
// reads the result. Where HEDDLE_SHARED has Qwen3's tokenizer, both also talk to a model of random weights whose context
// of 40,960 tokens is small for them: a second conversation reuses the first one's prompt, and one outgrows the context.
// `./run setup --agents` installs them. HEDDLE_PROGRAM is the server.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {writeModel} from './scripted_model.mjs';

const programs = resolve(process.env.HEDDLE_AGENTS ?? 'build/agents', 'node_modules/.bin');
if (!existsSync(join(programs, 'claude')) || !existsSync(join(programs, 'codex'))) {
  console.log('skipped: ./run setup --agents installs the agents');
  process.exit(0);
}
const folder = mkdtempSync(join(tmpdir(), 'heddle-agents-'));
const call = (name, parameters) => `I make a file.\n</think>\n\n<tool_call>\n<function=${name}>\n${
  Object.entries(parameters).map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`).join('')
}</function>\n</tool_call>`;
const done = 'There is a file now: heddle.txt holds one line.';

// The template is Qwen3.5's where the shared data is there, else one that is as strict. Its end, a blank behind the
// opening tag, picks the script: a call of Claude Code's tool or of Codex', or the answer after the result.
const texts = {
  '\n': call('Bash', {command: 'echo woven > heddle.txt', description: 'Makes a file'}),
  '\t': call('exec_command', {cmd: 'echo woven > heddle.txt'}),
  ' ': `The file is made.\n</think>\n\n${done}`,
};
const official = join(process.env.HEDDLE_SHARED ?? '/nonexistent', 'data/chat_templates/hf/Qwen3.5-4B.jinja');
const pick = `(' ' if messages[-1].role == 'tool' or not tools else '\\n' if 'Bash' in (tools | tojson) else '\\t')`;
const strict = `{%- for m in messages %}{% if m.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}{% endif %}
{{- '<|im_start|>' + m.role + '\\n' }}{{ m.content if m.content is string else (m.content | tojson) }}
{%- for t in m.tool_calls or [] %}<tool_call>{{ t.function | tojson }}</tool_call>{% endfor %}{{ '<|im_end|>\\n' }}
{%- endfor %}{{ tools | tojson if tools else '' }}<|im_start|>assistant\n{{ '<think>\\n' }}`;
const source = existsSync(official) ? readFileSync(official, 'utf8') : strict;
const [whole, before, after] = source.match(/^([^]*)'<think>(?:\n|\\n)'([^]*)$/);  // the last one
assert.ok(whole);
const chatTemplate = `${before}'<think>' + ${pick}${after}`;
writeModel(join(folder, 'model'), {texts, chatTemplate, contextLength: 262144});

// Servers that run.
const servers = [];

// Serves a model; the server's address, and a function that returns its log.
async function serve(model, options) {
  const heddle = spawn(process.env.HEDDLE_PROGRAM ?? 'build/release/bin/heddle', [
    'serve', join(folder, model), '--served-model-name', 'scripted', '--port', '0', ...options,
  ], {stdio: ['ignore', 'pipe', 'pipe']});
  servers.push(heddle);
  let log = '';
  const address = await new Promise((found, failed) => {
    const read = (bytes) => {
      log += bytes;
      const served = log.match(/ at (http:\/\/\S+): /);
      if (served) found(served[1]);
    };
    heddle.stdout.on('data', read);
    heddle.stderr.on('data', read);
    heddle.on('exit', () => failed(new Error(`the server ended:\n${log}`)));
  });
  return {address, log: () => log};
}

// Runs an agent in the folder `work`; its output and exit code.
async function run(program, work, args, environment) {
  const {PATH} = process.env;
  const child = spawn(join(programs, program), args, {
    cwd: work, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120000, killSignal: 'SIGKILL',
    env: {PATH, CI: '1', ...environment},
  });
  let output = '';
  let errors = '';
  child.stdout.on('data', (bytes) => { output += bytes; });
  child.stderr.on('data', (bytes) => { errors += bytes; });
  const code = await new Promise((ended) => { child.on('exit', ended); });
  return {code, output, all: `${output}\n${errors}`};
}

const emptyFolder = (name) => mkdtempSync(join(folder, `${name}-`));

// An agent's conversations with a server: a function that has it answer a question in the folder `work`.
function claudeCode(address) {
  const environment = {
    HOME: emptyFolder('home'), ANTHROPIC_BASE_URL: address, ANTHROPIC_AUTH_TOKEN: 'none', ANTHROPIC_MODEL: 'scripted',
    ANTHROPIC_DEFAULT_HAIKU_MODEL: 'scripted', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1',
  };
  return (work, question, options = []) => run('claude', work, [
    '-p', question, '--output-format', 'json', '--allowedTools', 'Bash', '--max-turns', '4', ...options,
  ], environment);
}

function codex(address) {
  const home = emptyFolder('home');
  const provider = `{name = "heddle", base_url = "${address}/v1", wire_api = "responses"}`;
  return (work, question, {options = [], resume = []} = {}) => run('codex', work, [
    'exec', '--json', '--skip-git-repo-check', '-C', work, '-m', 'scripted', '-c', `model_providers.heddle=${provider}`,
    '-c', 'model_provider="heddle"', ...options, '--dangerously-bypass-approvals-and-sandbox', ...resume, question,
  ], {HOME: home, CODEX_HOME: home});
}

async function runTool() {
  const {address, log} = await serve('model', ['--tool-call-parser', 'qwen3_coder', '--reasoning-parser', 'qwen3',
    '--max-total-tokens', '524288', '--max-running-requests', '4']);
  const check = (work, {code, all}) => {
    assert.equal(code, 0, `${all}\n${log().slice(-4000)}`);
    assert.equal(readFileSync(join(work, 'heddle.txt'), 'utf8'), 'woven\n', all);
  };
  const first = emptyFolder('claude');
  const claude = await claudeCode(address)(first, 'Make a file.');
  check(first, claude);
  assert.equal(JSON.parse(claude.output).result, done);
  assert.equal(JSON.parse(claude.output).is_error, false);
  const second = emptyFolder('codex');
  const answer = await codex(address)(second, 'Make a file.');
  check(second, answer);
  assert.ok(answer.output.includes(done), answer.output);
  console.log('Claude Code and Codex: a round of a tool each');
}

// Random weights, which draw one of many end tokens soon.
function writeSmallContext(tokenizer) {
  const model = join(folder, 'small');
  mkdirSync(model);
  for (const name of ['tokenizer.json', 'tokenizer_config.json']) copyFileSync(join(tokenizer, name), join(model, name));
  const ends = Array.from({length: 3000}, (_, i) => i * 50);
  writeFileSync(join(model, 'generation_config.json'), JSON.stringify({eos_token_id: ends}));
  writeFileSync(join(model, 'config.json'), JSON.stringify({
    architectures: ['Qwen3ForCausalLM'], model_type: 'qwen3', hidden_size: 32, intermediate_size: 64,
    num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, vocab_size: 151936,
    max_position_embeddings: 40960, rms_norm_eps: 1e-6, rope_theta: 1000000, tie_word_embeddings: true,
    torch_dtype: 'bfloat16', eos_token_id: 151645, bos_token_id: 151643,
  }));
}

const words = 'river stone green light under paper window seven orange winter table garden'.split(' ');
const longText = (size) => Array.from({length: size}, (_, i) => words[(i * i + i) % words.length]).join(' ');

async function outgrowContext() {
  const tokenizer = join(process.env.HEDDLE_SHARED ?? '/nonexistent', 'data/tokenizers/qwen3');
  if (!existsSync(tokenizer)) {
    console.log('skipped: a context of 40,960 tokens, for which HEDDLE_SHARED has no tokenizer');
    return;
  }
  writeSmallContext(tokenizer);
  const {address, log} = await serve('small', ['--load-format', 'dummy', '--tool-call-parser', 'qwen',
    '--max-total-tokens', '131072']);

  // Claude Code asks for 32,000 tokens of output, is told what fits, and asks for that.
  const askClaude = claudeCode(address);
  const claudeWork = emptyFolder('claude');
  const answerOf = async (question, options) => {
    const {output, all} = await askClaude(claudeWork, question, options);
    const answer = JSON.parse(output);
    assert.equal(answer.is_error, false, `${all}\n${log().slice(-4000)}`);
    return answer.usage;
  };
  await answerOf('Say hello.');
  const {input_tokens: computed, cache_read_input_tokens: read} = await answerOf('Say hello once more.');
  assert.ok(read >= 0.9 * (read + computed), `Claude Code: ${read} of ${read + computed} tokens cached`);
  // It shortens the conversation that does not fit, and goes on.
  for (let turn = 0; turn < 6; ++turn) await answerOf(`${turn} ${longText(4500)}`, turn > 0 ? ['--continue'] : []);
  assert.match(log(), /POST \/v1\/messages 400/);

  // Codex does so only if it is told the context.
  const askCodex = codex(address);
  const codexWork = emptyFolder('codex');
  const usageOf = ({code, output, all}) => {
    assert.equal(code, 0, `${all}\n${log().slice(-4000)}`);
    return output.trim().split('\n').map((line) => (line.startsWith('{') ? JSON.parse(line) : {})).at(-1).usage;
  };
  usageOf(await askCodex(codexWork, 'Say hello.'));
  const {input_tokens: all, cached_input_tokens: cached} = usageOf(await askCodex(codexWork, 'Say hello once more.'));
  assert.ok(cached >= 0.9 * all, `Codex: ${cached} of ${all} tokens cached`);
  const resume = ['resume', '--last'];
  usageOf(await askCodex(codexWork, longText(12000)));
  usageOf(await askCodex(codexWork, longText(12000), {resume}));
  const outgrown = await askCodex(codexWork, longText(12000), {resume});
  assert.match(outgrown.output, /ran out of room in the model's context window/);
  const options = ['-c', 'model_context_window=40960', '-c', 'model_auto_compact_token_limit=24000'];
  usageOf(await askCodex(codexWork, longText(12000), {options}));
  for (let turn = 0; turn < 3; ++turn) usageOf(await askCodex(codexWork, longText(12000), {options, resume}));
  console.log(`Claude Code and Codex: ${read} of ${read + computed} and ${cached} of ${all} tokens cached; both outgrew `
    + 'a context of 40,960 tokens and went on, Codex because it was told the context');
}

try {
  await runTool();
  await outgrowContext();
} finally {
  for (const server of servers) {
    server.removeAllListeners('exit');
    server.kill('SIGINT');
    await new Promise((ended) => { server.on('exit', ended); });
  }
  rmSync(folder, {recursive: true, force: true});
}
