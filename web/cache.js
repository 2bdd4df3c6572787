// SPDX-License-Identifier: Apache-2.0
// The memory of the pools, the prefix tree, and what a typed prompt would reuse of it.
import {post, postJson} from './api.js';
import {conversation} from './chat.js';
import {byId, bytes, count, html, percent, svg} from './dom.js';
import {TreeView} from './tree.js';

const kMaxNodes = 400;
const kMaxPromptTokens = 8000;  // whose ids fit into a request to /inspect
const kTypingPauseMs = 250;

let view;
let promptIds = [];
let promptError = '';

// ---- Memory ----

const kParts = [['requests', 'requests'], ['shared', 'shared by requests and tree'], ['cached', 'cached, can be evicted']];

function poolElement(title, unit, pool, unitTokens) {
  let x = 0;
  const used = pool.total - pool.free;
  const rects = kParts.map(([name]) => {
    // A part that is there is seen, however small.
    const width = pool[name] > 0 ? Math.max(0.25, 100 * pool[name] / pool.total) : 0;
    const rect = svg('rect', {class: `${name}-part`, x, y: 0, width, height: 10});
    x += width;
    return rect;
  });
  const size = pool.bytes_each > 0 ? `, ${bytes(used * pool.bytes_each)} of ${bytes(pool.total * pool.bytes_each)}` : '';
  const tokens = unitTokens > 0 ? ` of ${unitTokens} tokens` : '';
  const summary = `${count(used)} of ${count(pool.total)} ${unit}${tokens}${size}`;
  const items = [...kParts, ['free', 'free']].map(([name, label]) => html(
    'li', {}, svg('svg', {viewBox: '0 0 10 10', 'aria-hidden': 'true'}, svg('rect', {class: `${name}-part`, width: 10, height: 10, fill: 'none'})),
    `${label}: ${count(pool[name])} (${percent(pool.total > 0 ? pool[name] / pool.total : 0)})`));
  items.push(html('li', {}, `evicted since the start: ${count(pool.evicted)}`));
  return html('div', {class: 'pool'},
              html('p', {class: 'pool-head'}, html('strong', {}, title), html('span', {}, summary)),
              svg('svg', {viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: ${summary}`}, ...rects),
              html('ul', {}, ...items));
}

function showPools({pools, page_size: pageSize}) {
  const shown = [['KV pages', 'pages', pools.kv_pages, pageSize],
                 ['Pages of sliding windows', 'pages', pools.window_pages, pageSize],
                 ['Recurrent states', 'slots', pools.states, 0]];
  byId('pools').replaceChildren(...shown.filter(([, , pool]) => pool.total > 0)
    .map(([title, unit, pool, tokens]) => poolElement(title, unit, pool, tokens)));
}

// ---- The prompt ----

async function readPrompt() {
  const text = byId('prompt').value;
  promptError = '';
  if (!text) {
    promptIds = [];
  } else {
    try {
      const {tokens} = await postJson('tokenize', byId('as-chat').checked
        ? {messages: [...conversation(), {role: 'user', content: text}]} : {prompt: text});
      if (byId('prompt').value !== text) return;  // a later one is on its way
      promptIds = tokens.slice(0, kMaxPromptTokens);
      if (tokens.length > kMaxPromptTokens) promptError = `Only the first ${count(kMaxPromptTokens)} tokens are looked up.`;
    } catch (error) {
      promptIds = [];
      promptError = error.message;
    }
  }
  await refresh();
}

function showReuse(reuse) {
  let text = promptError;
  if (reuse) {
    const {prompt_tokens: all, matched_tokens: matched, reused_tokens: reused} = reuse;
    text = `${count(reused)} of ${count(all)} tokens would be reused (${percent(reused / all)}), ` +
      `${count(all - reused)} computed.`;
    if (reuse.exact_repeat) text += ' The prompt was answered before: not even its last token is computed again.';
    if (matched > reused) {
      text += ` ${count(matched)} agree with the tree, but ` +
        (reused > 0 ? `the last state on their path was kept after ${count(reused)}.` : 'no state was kept on their path.');
    }
    if (promptError) text += ` ${promptError}`;
  }
  if (byId('reuse').textContent !== text) byId('reuse').textContent = text;
}

export async function refresh() {
  const seen = await postJson('inspect', {max_requests: 0, max_nodes: kMaxNodes, prompt_token_ids: promptIds});
  showPools(seen);
  showReuse(seen.reuse);
  const {tree} = seen;
  for (const item of document.querySelectorAll('.legend .needs-state')) item.hidden = !tree.needs_state;
  const part = tree.nodes.length < tree.num_nodes ? `, the ${count(tree.nodes.length)} used last are drawn` : '';
  const states = tree.needs_state ? `, ${count(tree.num_states)} states` : '';
  byId('tree-count').textContent = `${count(tree.num_nodes)} nodes, ${count(tree.num_tokens)} tokens${states}${part}`;
  view.draw(tree, seen.reuse);
}

export function setUp() {
  view = new TreeView();
  let timer = 0;
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(readPrompt, kTypingPauseMs);
  };
  byId('prompt').addEventListener('input', changed);
  byId('as-chat').addEventListener('change', changed);
  byId('probe').addEventListener('submit', (event) => event.preventDefault());
  byId('flush').addEventListener('click', async () => {
    try {
      await post('flush_cache');
      await refresh();
    } catch (error) {
      promptError = error.message;
      showReuse(null);
    }
  });
}
