// SPDX-License-Identifier: Apache-2.0
// The playground: a conversation over /v1/chat/completions, streamed, with the probability of every
// token.
import {stream} from './api.js';
import {byId, count, html, meter, percent, seconds, visible} from './dom.js';

const kTopLogprobs = 5;
let messages = [];    // {role, content} as they were sent and answered; a new chat has a new list
let running = null;   // the AbortController of the answer that arrives

// The messages before the next one.
export function conversation() {
  const system = byId('sampling').elements.system.value.trim();
  return system ? [{role: 'system', content: system}, ...messages] : messages;
}

// ---- Sampling ----

function sampling() {
  const form = byId('sampling');
  const body = {};
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'frequency_penalty',
                      'presence_penalty', 'repetition_penalty', 'max_completion_tokens', 'seed']) {
    const value = form.elements[name].value;
    if (value !== '') body[name] = Number(value);
  }
  if (form.elements.ignore_eos.checked) body.ignore_eos = true;
  if (form.elements.stop.value) body.stop = form.elements.stop.value;
  if (form.elements.probabilities.checked) {
    body.logprobs = true;
    body.top_logprobs = kTopLogprobs;
  }
  return body;
}

// ---- Tokens ----

// How unlikely a token was, in six steps.
function tint(logprob) {
  const p = Math.exp(logprob);
  return p > 0.9 ? 0 : p > 0.7 ? 1 : p > 0.5 ? 2 : p > 0.3 ? 3 : p > 0.1 ? 4 : 5;
}

function showCard(span, entry) {
  const card = byId('token');
  const rows = entry.top_logprobs.map((other) => [other, other.token === entry.token]);
  if (!rows.some(([, chosen]) => chosen)) rows.push([entry, true]);
  card.replaceChildren(
    html('span', {}, html('span', {class: 'mono'}, visible(entry.token)), ' had ',
         html('strong', {}, percent(Math.exp(entry.logprob)))),
    html('table', {}, html('tbody', {}, ...rows.map(([other, chosen]) => {
      const p = Math.exp(other.logprob);
      return html('tr', {class: chosen ? 'chosen' : null}, html('td', {}, visible(other.token)),
                  html('td', {class: 'bar-cell'}, meter(p)), html('td', {}, percent(p)));
    }))));
  card.hidden = false;
  const at = span.getBoundingClientRect();
  const left = Math.min(at.left, window.innerWidth - card.offsetWidth - 12);
  const below = at.bottom + 8;
  const fits = below + card.offsetHeight < window.innerHeight;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${fits ? below : at.top - card.offsetHeight - 8}px`;
}

const hideCard = () => { byId('token').hidden = true; };

// The text of an answer, of which every token can be looked at: with the mouse, or with the arrow
// keys while the text has the focus.
class AnswerText {
  constructor() {
    this.element = html('div', {class: 'text', tabindex: '0', role: 'group', 'aria-label': 'Answer'});
    this.tokens = [];  // {span, entry}
    this.active = -1;
    this.pending = [];  // not shown yet
    this.element.addEventListener('pointerover', (event) => {
      const index = this.tokens.findIndex(({span}) => span === event.target);
      if (index >= 0) this.activate(index);
    });
    this.element.addEventListener('pointerleave', () => this.activate(-1));
    this.element.addEventListener('blur', () => this.activate(-1));
    this.element.addEventListener('keydown', (event) => this.onKey(event));
  }

  // Shown with the next frame: tokens may come faster than the page can be laid out.
  add(text, entry) {
    if (this.pending.length === 0) requestAnimationFrame(() => this.flush());
    if (!entry) {
      this.pending.push(text);
      return;
    }
    const span = html('span', {class: `t p${tint(entry.logprob)}`}, text);
    this.tokens.push({span, entry});
    this.pending.push(span);
  }

  flush() {
    const list = byId('messages');
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    this.element.append(...this.pending);
    this.pending = [];
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  end() {
    this.flush();
    if (this.tokens.length === 0) return;
    this.element.setAttribute(
      'aria-label', `Answer of ${this.tokens.length} tokens; the arrow keys go from token to token`);
  }

  activate(index) {
    this.tokens[this.active]?.span.classList.remove('on');
    this.active = index;
    const token = this.tokens[index];
    if (!token) return hideCard();
    token.span.classList.add('on');
    showCard(token.span, token.entry);
  }

  onKey(event) {
    const last = this.tokens.length - 1;
    const to = {ArrowRight: Math.min(this.active + 1, last), ArrowLeft: Math.max(this.active - 1, 0),
                Home: 0, End: last, Escape: -1}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.activate(to);
    this.tokens[to]?.span.scrollIntoView({block: 'nearest'});
  }
}

// ---- The conversation ----

function append(element) {
  const list = byId('messages');
  list.append(element);
  list.scrollTop = list.scrollHeight;
}

function showQuestion(text) {
  append(html('article', {class: 'message user', 'aria-label': 'You'},
              html('div', {class: 'text'}, text)));
}

function describe(usage, times, finish) {
  const parts = [];
  const tokens = usage?.completion_tokens ?? times.tokens;
  parts.push(`${count(tokens)} tokens`);
  if (times.first) {
    parts.push(`first after ${seconds((times.first - times.start) / 1000)}`);
    const rest = (times.last - times.first) / 1000;
    if (tokens > 1 && rest > 0) parts.push(`${count((tokens - 1) / rest)} tokens/s`);
  }
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt of ${count(usage.prompt_tokens)}, ${count(cached)} from the cache`);
  }
  if (finish) parts.push({stop: 'ended by itself', length: 'cut at the limit'}[finish] ?? finish);
  return parts.join(' · ');
}

async function answer() {
  const text = new AnswerText();
  const reasoning = html('div', {class: 'text reasoning', hidden: true});
  const meta = html('p', {class: 'meta'});
  const asked = messages;
  const tinted = byId('sampling').elements.probabilities.checked;
  const article = html('article', {class: `message live${tinted ? ' tinted' : ''}`, 'aria-label': 'Heddle'},
                       reasoning, text.element, meta);
  append(article);
  const body = {model: 'default', stream: true, stream_options: {include_usage: true}, ...sampling(),
                messages: conversation()};
  const times = {start: performance.now(), first: 0, last: 0, tokens: 0};
  let content = '';
  let usage = null;
  let finish = '';
  try {
    for await (const chunk of stream('v1/chat/completions', body, running.signal)) {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      finish = choice.finish_reason ?? finish;
      const entries = choice.logprobs?.content ?? [];
      const said = choice.delta?.content ?? '';
      const thought = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? '';
      if (thought) {
        reasoning.hidden = false;
        reasoning.append(thought);
      }
      if (!said && !thought) continue;
      times.last = performance.now();
      times.first ||= times.last;
      times.tokens += Math.max(1, entries.length);
      // The last of several tokens in one event completes a character: it stands for all of them.
      if (said) text.add(said, entries.at(-1));
      content += said;
    }
  } catch (error) {
    if (error.name === 'AbortError') finish = 'stopped';
    else article.append(html('p', {class: 'failed', role: 'alert'}, error.message));
  }
  article.classList.remove('live');
  text.end();
  if (times.tokens > 0 || finish) meta.textContent = describe(usage, times, finish);
  if (content) asked.push({role: 'assistant', content});
  else asked.pop();  // the question stays on the page, but is not asked again
}

async function send(event) {
  event.preventDefault();
  const field = byId('question');
  const text = field.value.trim();
  if (!text || running) return;
  field.value = '';
  running = new AbortController();
  byId('send').hidden = true;
  byId('stop').hidden = false;
  messages.push({role: 'user', content: text});
  showQuestion(text);
  try {
    await answer();
  } finally {
    running = null;
    byId('send').hidden = false;
    byId('stop').hidden = true;
    if (document.activeElement === document.body) field.focus();
  }
}

export function setUp() {
  const form = byId('ask');
  form.addEventListener('submit', send);
  byId('question').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  byId('chat').addEventListener('keydown', (event) => {
    if (event.key === 'Escape') running?.abort();
  });
  byId('stop').addEventListener('click', () => running?.abort());
  byId('clear').addEventListener('click', () => {
    running?.abort();
    messages = [];
    byId('messages').replaceChildren();
    hideCard();
    byId('question').focus();
  });
  byId('sampling').addEventListener('submit', (event) => event.preventDefault());
  byId('sampling').elements.probabilities.addEventListener('change', (event) => {
    for (const article of document.querySelectorAll('.message:not(.user)')) {
      article.classList.toggle('tinted', event.target.checked);
    }
  });
  byId('messages').addEventListener('scroll', hideCard);
}
