// SPDX-License-Identifier: Apache-2.0
// The conversation: asking over /v1/chat/completions, answering again, editing, and the conversation's place in storage.
import {postJson, stream} from './api.js';
import {followEnd, LiveAnswer, messageElement} from './answer.js';
import * as chats from './chats.js';
import {byId, copyButton, count, html, iconButton, percent, seconds} from './dom.js';
import {askForKey} from './key.js';
import {model, readModel, sampling} from './sampling.js';
import * as store from './store.js';
import {hideCard} from './tokens.js';

const kOpen = 'heddle-open-chat';  // of this tab
const kWaitPeriodMs = 700;
const kMaxRequests = 1000;

let chat = store.newChat();
let running = null;  // {controller, chat, live} of the answer that arrives

const system = () => byId('sampling').elements.system;

// What a server is asked with: the messages before the next one.
export function conversation() {
  const text = system().value.trim();
  const messages = chat.messages.filter(({role, content}) => role === 'user' || content)
    .map(({role, content}) => ({role, content}));
  return text ? [{role: 'system', content: text}, ...messages] : messages;
}

// ---- Storage ----

function save(which = chat) {
  if (which.messages.length === 0) return;
  byId('storage').hidden = store.save(which);
}

function touch(which) {
  which.updated = Date.now();
  save(which);
  showList();
}

const showList = () => chats.show(chat.id, {
  open: (other) => {
    open(store.load(other.id) ?? other);
    byId('chats').hidePopover();
  },
  renamed: (other, title) => {
    const target = other.id === chat.id ? chat : other;
    target.title = title;
    save(target);
    showList();
  },
  remove: (other) => {
    if (other.id === chat.id) open(store.newChat());
    store.remove(other.id);
    showList();
    chats.offerUndo(`“${store.titleOf(other)}” was deleted.`, () => {
      save(other);
      open(other);
    });
  },
  model: () => model.name,
});

function open(other) {
  running?.controller.abort();
  hideCard();
  chat = other;
  system().value = chat.system ?? '';
  try {
    sessionStorage.setItem(kOpen, chat.id);
  } catch { /* storage is forbidden: a reload begins anew */ }
  byId('messages').replaceChildren(...chat.messages.map(element));
  byId('messages').scrollTop = byId('messages').scrollHeight;
  showList();
}

function startNew() {
  const before = chat;
  open({...store.newChat(), system: system().value.trim()});
  byId('chats').hidePopover();
  byId('question').focus();
  if (before.messages.length > 0) chats.offerUndo('A new chat was begun.', () => open(before));
}

// ---- Messages ----

function element(message) {
  const result = messageElement(message);
  addActions(result, message);
  return result;
}

function addActions(article, message) {
  const isUser = message.role === 'user';
  if (message.error) {
    article.append(html('p', {class: 'failed', role: 'alert'}, message.error, ' ',
                        html('button', {type: 'button', class: 'small retry', onclick: () => answerAgain(message)}, 'Try again')));
  }
  const again = isUser ? iconButton('edit', 'Edit and ask again', () => edit(article, message))
    : iconButton('again', 'Answer again', () => answerAgain(message));
  article.append(html('div', {class: 'actions'}, message.meta ? html('p', {class: 'meta'}, message.meta) : null,
                      message.content ? copyButton(() => message.content) : null, again));
}

// Drops the message and what follows, and says so where that can be missed.
function cutAt(message, text) {
  const copy = structuredClone(chat);
  const index = chat.messages.indexOf(message);
  const lost = chat.messages.slice(index).filter(({role, content}) => role === 'assistant' && content).length;
  chat.messages.length = index;
  const articles = byId('messages').children;
  while (articles.length > index) byId('messages').lastElementChild.remove();
  if (lost > 0) {
    chats.offerUndo(text, () => {
      running?.controller.abort();
      store.save(copy);
      open(copy);
    });
  }
}

async function answerAgain(message) {
  if (running) return;
  hideCard();
  cutAt(message, 'The answer is given anew.');
  await answer();
}

function edit(article, message) {
  if (running) return;
  const field = html('textarea', {'aria-label': 'Your message', rows: Math.min(12, message.content.split('\n').length + 1)});
  field.value = message.content;
  const cancel = () => article.replaceWith(element(message));
  const form = html('form', {class: 'edit'}, field, html(
    'div', {class: 'row'}, html('span'), html('button', {type: 'button', class: 'quiet', onclick: cancel}, 'Cancel'),
    html('button', {type: 'submit', class: 'main'}, 'Ask again')));
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    cancel();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = field.value.trim();
    if (!text || running) return;
    cutAt(message, 'The chat goes on from the edited message.');
    ask(text);
  });
  article.replaceChildren(form);
  field.focus();
}

// ---- Asking ----

// Says what the request waits for, until its first token is there.
async function sayWait(live, rid, signal) {
  for (let allowed = true; !signal.aborted && !live.first && !live.done;) {
    const time = seconds((performance.now() - live.start) / 1000);
    let text = `Waiting · ${time}`;
    try {
      const requests = allowed ? (await postJson('inspect', {max_requests: kMaxRequests, max_nodes: 0})).requests : [];
      const own = requests.find((request) => request.rid === rid);
      if (own?.phase === 'waiting') {
        const ahead = requests.filter(({phase, age_seconds: age}) => phase === 'waiting' && age > own.age_seconds).length;
        text = `Queued · ${ahead === 1 ? '1 request is' : `${count(ahead)} requests are`} ahead · ${time}`;
      } else if (own) {
        text = `Reading the prompt · ${percent(Math.min(1, own.computed_tokens / own.prompt_tokens))} · ${time}`;
      }
    } catch (error) {
      if (error.needsKey) allowed = false;  // takes the admin key
    }
    if (live.first || live.done) return;
    live.say(text);
    await new Promise((resolve) => { setTimeout(resolve, kWaitPeriodMs); });
  }
}

function setRunning(value) {
  running = value;
  byId('send').hidden = value !== null;
  byId('stop').hidden = value === null;
  byId('messages').classList.toggle('busy', value !== null);
}

async function answer() {
  const asked = chat;
  const messages = conversation();
  const message = {role: 'assistant', content: ''};
  const live = new LiveAnswer(message, byId('sampling').elements.probabilities.checked);
  const controller = new AbortController();
  const own = {controller, chat: asked, live};
  setRunning(own);
  asked.messages.push(message);
  byId('messages').append(live.element);
  byId('messages').scrollTop = byId('messages').scrollHeight;
  const rid = `page-${store.newId()}`;
  let usage = null;
  let finish = '';
  try {
    sayWait(live, rid, controller.signal);
    if (!model.known) await readModel();
    const body = {model: model.name, stream: true, stream_options: {include_usage: true}, rid, ...sampling(), messages};
    for await (const chunk of stream('v1/chat/completions', body, controller.signal)) {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      finish = choice.finish_reason ?? finish;
      const content = choice.delta?.content ?? '';
      const reasoning = choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? '';
      if (content || reasoning) live.add({content, reasoning, entries: choice.logprobs?.content ?? []});
    }
  } catch (error) {
    if (error.name === 'AbortError') finish = 'stopped';
    else message.error = error.message;
    if (error.status === 401) askForKey(error.message);
  }
  live.done = true;
  followEnd(() => {
    live.end(usage, finish);
    if (live.element.isConnected) addActions(live.element, message);
  });
  if (running === own) setRunning(null);
  // A chat that was deleted, or that undo brought back as it was, is not stored anew.
  if (chat === asked || (chat.id !== asked.id && store.load(asked.id))) touch(asked);
}

async function ask(text) {
  const message = {role: 'user', content: text};
  chat.messages.push(message);
  chat.system = system().value.trim();
  byId('messages').append(element(message));
  touch(chat);
  await answer();
  if (document.activeElement === document.body) byId('question').focus();
}

async function send(event) {
  event.preventDefault();
  const field = byId('question');
  const text = field.value.trim();
  if (!text || running) return;
  field.value = '';
  hideCard();
  await ask(text);
}

export function forgetModel() { model.known = false; }

export async function refresh() {
  if (!model.known) await readModel();
}

export function setUp() {
  const form = byId('ask');
  const touchScreen = window.matchMedia('(hover: none)');
  form.addEventListener('submit', send);
  byId('question').addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touchScreen.matches) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  byId('chat').addEventListener('keydown', (event) => {
    if (event.key === 'Escape') running?.controller.abort();
  });
  byId('stop').addEventListener('click', () => running?.controller.abort());
  for (const id of ['clear', 'clear-narrow']) byId(id).addEventListener('click', startNew);
  byId('sampling').addEventListener('submit', (event) => event.preventDefault());
  byId('sampling').elements.probabilities.addEventListener('change', (event) => {
    byId('chat').classList.toggle('tinted', event.target.checked);
    hideCard();
  });
  system().addEventListener('change', () => {
    chat.system = system().value.trim();
    save();
  });
  byId('messages').addEventListener('scroll', hideCard);
  window.addEventListener('pagehide', () => save(running?.chat ?? chat));
  window.addEventListener('storage', showList);  // another tab's changes
  let last = null;
  try {
    last = store.load(sessionStorage.getItem(kOpen));
  } catch { /* storage is forbidden */ }
  open(last ?? chat);
}
