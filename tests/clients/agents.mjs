// SPDX-License-Identifier: Apache-2.0
// Claude Code and Codex, headless, against a scripted model of their own: each runs one command through its tool and
// reads the result. `./run setup --agents` installs them. HEDDLE_PROGRAM is the server.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {existsSync, mkdtempSync, readFileSync, rmSync} from 'node:fs';
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

const heddle = spawn(process.env.HEDDLE_PROGRAM ?? 'build/release/bin/heddle', [
  'serve', join(folder, 'model'), '--served-model-name', 'scripted', '--port', '0', '--tool-call-parser', 'qwen3_coder',
  '--reasoning-parser', 'qwen3', '--max-total-tokens', '524288', '--max-running-requests', '4',
], {stdio: ['ignore', 'pipe', 'pipe']});
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

// Runs an agent in an empty folder; its output.
async function run(name, program, args, environment) {
  const home = mkdtempSync(join(folder, `${name}-`));
  const work = mkdtempSync(join(folder, `${name}-work-`));
  const {PATH} = process.env;
  const child = spawn(join(programs, program), args(work), {
    cwd: work, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120000, killSignal: 'SIGKILL',
    env: {PATH, HOME: home, CI: '1', ...environment(home)},
  });
  let output = '';
  let errors = '';
  child.stdout.on('data', (bytes) => { output += bytes; });
  child.stderr.on('data', (bytes) => { errors += bytes; });
  const code = await new Promise((ended) => { child.on('exit', ended); });
  assert.equal(code, 0, `${name}: ${output}\n${errors}\n${log.slice(-4000)}`);
  assert.equal(readFileSync(join(work, 'heddle.txt'), 'utf8'), 'woven\n', `${name}: ${output}\n${errors}`);
  return output;
}

try {
  const claude = JSON.parse(await run('Claude Code', 'claude', () => [
    '-p', 'Make a file.', '--output-format', 'json', '--allowedTools', 'Bash', '--max-turns', '4',
  ], () => ({
    ANTHROPIC_BASE_URL: address, ANTHROPIC_AUTH_TOKEN: 'none', ANTHROPIC_MODEL: 'scripted',
    ANTHROPIC_DEFAULT_HAIKU_MODEL: 'scripted', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1',
  })));
  assert.equal(claude.result, done);
  assert.equal(claude.is_error, false);

  const provider = `{name = "heddle", base_url = "${address}/v1", wire_api = "responses"}`;
  const codex = await run('Codex', 'codex', (work) => [
    'exec', '--skip-git-repo-check', '-C', work, '-m', 'scripted', '-c', `model_providers.heddle=${provider}`,
    '-c', 'model_provider="heddle"', '--dangerously-bypass-approvals-and-sandbox', 'Make a file.',
  ], (home) => ({CODEX_HOME: home}));
  assert.ok(codex.includes(done), codex);
  console.log('Claude Code and Codex: a round of a tool each');
} finally {
  heddle.removeAllListeners('exit');
  heddle.kill('SIGINT');
  await new Promise((ended) => { heddle.on('exit', ended); });
  rmSync(folder, {recursive: true, force: true});
}
