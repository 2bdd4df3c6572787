// SPDX-License-Identifier: Apache-2.0
// The dashboard's conversations in Chromium, with the scripted model: what storage keeps over a reload, answering
// again, keys, errors, waiting, narrow windows, long answers, and hostile Markdown.
import assert from 'node:assert/strict';
import {readFile} from 'node:fs/promises';
import {browser, newPage} from './browser.mjs';
import {address, library} from './client.mjs';
import {injections} from './markdown_injections.mjs';
import {finalText} from './scripted_model.mjs';

const {page, complaints, foreign} = await newPage({viewport: {width: 1280, height: 800}});
const chatRoute = '**/v1/chat/completions';

const ready = () => page.waitForFunction(() => document.querySelector('#model-name').textContent !== '');
const answered = (number) => page.waitForFunction(
  (count) => document.querySelectorAll('.message:not(.user):not(.live) .actions').length === count, number);
const titles = () => page.locator('#chat-list .open').allTextContents();
const lastAnswer = () => page.locator('.message:not(.user)').last();

async function ask(text) {
  const sent = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
  await page.fill('#question', text);
  await page.press('#question', 'Enter');
  return JSON.parse((await sent).postData());
}

// The answer of a server, made up: a list of texts, each a token.
function events(texts) {
  const event = (value) => `data: ${JSON.stringify(value)}\n\n`;
  const chunk = (content, index) => event({choices: [{delta: {content}, logprobs: {content: [
    {token: content, logprob: -(index % 7) / 2, top_logprobs: [{token: content, logprob: -(index % 7) / 2}, {token: 'x', logprob: -1}]}]}}]});
  return {status: 200, contentType: 'text/event-stream',
          body: texts.map(chunk).join('') + event({choices: [{delta: {}, finish_reason: 'stop'}]}) + 'data: [DONE]\n\n'};
}

// Nothing is sent that was not asked for; reasoning is folded and says how long it took.
await page.goto(address);
await ready();
const body = await ask('Rain?');
assert.deepEqual(Object.keys(body).sort(), ['messages', 'model', 'rid', 'stream', 'stream_options']);
assert.equal(body.model, await page.textContent('#model-name'));
await answered(1);
assert.match(await lastAnswer().locator('summary').textContent(), /^Thought for /);
assert.equal(await lastAnswer().locator('details').getAttribute('open'), null);
assert.equal(await lastAnswer().locator('.markdown').textContent(), finalText);
assert.equal(await page.getAttribute('[name=temperature]', 'placeholder'), '1');
assert.equal(await page.inputValue('[name=temperature]'), '');

// A reload keeps the conversation; New chat, deleting and answering anew can be undone.
await page.reload();
await ready();
assert.equal(await page.locator('.message').count(), 2);
assert.equal(await lastAnswer().locator('.markdown').textContent(), finalText);
await page.click('#clear');
assert.equal(await page.locator('.message').count(), 0);
await page.click('#undo button');
assert.equal(await page.locator('.message').count(), 2);
await page.click('[aria-label="Rename Rain?"]');
await page.fill('#chat-list input', 'Weather');
await page.press('#chat-list input', 'Enter');
assert.deepEqual(await titles(), ['Weather']);
const [download] = await Promise.all([page.waitForEvent('download'), page.click('[aria-label="Export Weather"]')]);
const exported = JSON.parse(await readFile(await download.path(), 'utf8'));
assert.deepEqual(exported.messages.map(({role}) => role), ['user', 'assistant']);
assert.equal(exported.messages[1].content, finalText);
await page.click('[aria-label="Delete Weather"]');
assert.deepEqual(await titles(), []);
await page.click('#undo button');
await page.reload();
await ready();
assert.deepEqual(await titles(), ['Weather']);

// Answering again, and editing the question.
const again = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
await page.click('[aria-label="Answer again"]');
assert.deepEqual(JSON.parse((await again).postData()).messages, [{role: 'user', content: 'Rain?'}]);
await answered(1);
await page.hover('.message.user');
await page.click('[aria-label="Edit and ask again"]');
await page.fill('.edit textarea', 'Snow?');
await page.click('.edit .main');
await answered(1);
assert.equal(await page.locator('.message.user .text').textContent(), 'Snow?');
await page.click('#undo button');
assert.equal(await page.locator('.message.user .text').textContent(), 'Rain?');

// The switch of a template that has one, and the defaults of a model that has some: they show and are not sent. Of the
// fields those are sent that have something in them, 0 and a neutral value, too.
await page.route('**/model_info', async (route) => {
  const response = await route.fetch();
  await route.fulfill({response, json: {...await response.json(), has_reasoning_switch: true,
                                        default_sampling: {temperature: 0.6, top_k: 20, min_p: 0}}});
});
assert.equal(await page.isVisible('#reasoning'), false);
await page.reload();
await page.waitForSelector('#reasoning-field:not([hidden])');
await page.selectOption('#reasoning', 'off');
assert.deepEqual(await Promise.all(['temperature', 'top_k', 'min_p', 'top_p'].map(
  (name) => page.getAttribute(`[name=${name}]`, 'placeholder'))), ['0.6', '20', '0', 'model']);
await page.fill('[name=temperature]', '0');
await page.fill('[name=top_p]', '1');
const set = await ask('Off.');
assert.deepEqual([set.reasoning, set.temperature, set.top_p], [{enabled: false}, 0, 1]);
assert.equal(['top_k', 'min_p', 'presence_penalty', 'stop'].some((name) => name in set), false);
await answered(2);
await page.selectOption('#reasoning', '');
for (const name of ['temperature', 'top_p']) await page.fill(`[name=${name}]`, '');

// A request that waits says behind how many.
let rid = '';
let let_go;
const held = new Promise((resolve) => { let_go = resolve; });
await page.route(chatRoute, async (route) => {
  rid = JSON.parse(route.request().postData()).rid;
  await held;
  await route.fulfill(events(['done']));
});
await page.route('**/inspect', (route) => route.fulfill({json: {requests: [
  {rid: 'other', phase: 'waiting', age_seconds: 9}, {rid, phase: 'waiting', age_seconds: 1}]}}));
await ask('Wait.');
await page.waitForFunction(() => document.querySelector('.status')?.textContent.includes('1 request is ahead'));
let_go();
await answered(3);
await page.unroute('**/inspect');
await page.unroute(chatRoute);

// A connection that fails, ends within an answer or is a proxy's page, and a server that is full, say so and offer
// another try; nothing but the question is sent again.
const cut = events(['half']).body.split('\n\n')[0] + '\n\n';
for (const [fail, wanted] of [
  [(route) => route.abort(), /cannot be reached/],
  [(route) => route.fulfill({...events([]), body: cut}), /ended before the answer did/],
  [(route) => route.fulfill({status: 502, contentType: 'text/html', body: '<h1>Bad Gateway</h1>'}), /The server answered 502/],
  [(route) => route.fulfill({status: 503, json: {error: {message: 'Too many wait.'}}}), /Too many wait/]]) {
  await page.route(chatRoute, fail);
  if (await page.locator('.failed .retry').count() === 0) await ask('Lost.');
  else await page.click('.failed .retry');
  await page.waitForFunction((text) => new RegExp(text, 'i').test(document.querySelector('.failed')?.textContent ?? ''),
                             wanted.source);
  await page.waitForSelector('.failed .retry');
  await page.unroute(chatRoute);
}
const retried = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
await page.click('.failed .retry');
assert.equal(JSON.parse((await retried).postData()).messages.at(-1).content, 'Lost.');
await answered(4);
assert.equal(await page.locator('.failed .retry').count(), 0);

// A key that is refused is not kept; the dialog comes by itself.
const refusal = {status: 401, json: {error: {message: 'No such key.'}}};
const guard = async (route) => {
  if (route.request().headers().authorization === 'Bearer right') await route.continue();
  else await route.fulfill(refusal);
};
for (const path of [chatRoute, '**/v1/models']) await page.route(path, guard);
await ask('Key.');
await page.waitForSelector('#key-dialog[open]');
await page.fill('#key', 'wrong');
await page.press('#key', 'Enter');
await page.waitForFunction(() => document.querySelector('#key-error').textContent.includes('refuses this key'));
assert.equal(await page.evaluate(() => sessionStorage.getItem('heddle-api-key')), null);
await page.fill('#key', 'right');
await page.press('#key', 'Enter');
await page.waitForSelector('#key-dialog', {state: 'hidden'});
assert.equal(await page.textContent('#key-label'), 'API key: set');
await page.click('.failed .retry');
await answered(5);
for (const path of [chatRoute, '**/v1/models']) await page.unroute(path);
const expected = complaints.splice(0);
assert.ok(expected.every((line) => /401|502|503|ERR_FAILED/.test(line)), expected.join('\n'));

// Traffic has its past after a reload.
const numPoints = (least) => page.waitForFunction((number) => {
  const line = document.querySelector('.plot > svg path.line.a')?.getAttribute('d') ?? '';
  return line.split(/[ML]/).length - 1 >= number;
}, least);
await page.click('nav a[href="#traffic"]');
await numPoints(2);
await page.reload();
const numStored = await page.evaluate(() => JSON.parse(sessionStorage.getItem('heddle-traffic'))[0]
  .filter(({values}) => values[0] !== null).length);
assert.ok(numStored >= 2);
await numPoints(numStored + 1);

// A full storage is said, and the chat goes on.
await page.click('nav a[href="#chat"]');
await page.evaluate(() => {
  for (let size = 2 ** 22; size > 0; size = Math.floor(size / 2)) {
    try {
      for (let i = 0; ; ++i) localStorage.setItem(`fill-${size}-${i}`, 'x'.repeat(size));
    } catch { /* smaller ones may fit */ }
  }
});
await page.click('#clear');
await ask('Full?');
await answered(1);
assert.equal(await page.isVisible('#storage'), true);
await page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith('fill-')).forEach((key) => localStorage.removeItem(key)));

// 7,000 tinted tokens scroll; frames are timed by the page.
const long = Array.from({length: 7000}, (_, index) => (index % 90 === 89 ? 'end.\n' : ` word${index}`));
await page.route(chatRoute, (route) => route.fulfill(events(long)));
await page.check('[name=probabilities]');
await page.click('#clear');
await ask('Long.');
await answered(1);
assert.equal(await page.locator('.t').count(), 7000);
const frames = await page.evaluate(async () => {
  const list = document.querySelector('#messages');
  const times = [];
  const frame = () => new Promise(requestAnimationFrame);
  list.scrollTop = 0;
  let before = await frame();
  for (let i = 0; i < 150; ++i) {
    list.scrollTop += list.scrollHeight / 150;
    const now = await frame();
    times.push(now - before);
    before = now;
  }
  return times.sort((a, b) => a - b);
});
const p95 = frames[Math.floor(frames.length * 0.95)];
console.log(`scrolling 7,000 tokens: p95 of a frame ${p95.toFixed(1)} ms`);
assert.ok(p95 <= 50, `p95 of a frame is ${p95} ms`);
await page.unroute(chatRoute);

// Hostile Markdown leaves only what is permitted here, whatever markdown.js permits itself.
const permitted = {
  P: [], H3: ['class'], UL: [], OL: ['start'], LI: [], BLOCKQUOTE: [], HR: [], BR: [], STRONG: [], EM: [], DEL: [], CODE: [], PRE: ['tabindex'],
  A: ['href', 'rel', 'target'], DIV: ['class', 'role', 'aria-label', 'tabindex'], SPAN: [], BUTTON: ['type', 'class'], TABLE: [], THEAD: [],
  TBODY: [], TR: [], TH: ['class', 'scope'], TD: ['class'],
};
assert.equal(new Set(injections).size, 200);
const bad = await page.evaluate(async ([texts, allowed]) => {
  const {markdown} = await import('/dashboard/markdown.js');
  const found = [];
  for (const text of texts) {
    const whole = markdown(text);
    document.querySelector('#messages').append(whole);
    for (const element of whole.querySelectorAll('*')) {
      const attributes = allowed[element.nodeName];
      const extra = [...element.attributes].find(({name}) => !attributes?.includes(name));
      const address = element.getAttribute('href');
      const link = address === null || (/^(https?|mailto):/.test(address) && element.rel.split(' ').includes('noopener'));
      if (!attributes || extra || !link) found.push(`${text.slice(0, 100)} made ${element.cloneNode().outerHTML}`);
    }
    for (const element of whole.querySelectorAll('*')) element.dispatchEvent(new Event('error'));
    whole.remove();
  }
  if (window.hit) found.push('something ran');
  return found;
}, [injections, permitted]);
assert.deepEqual(bad, []);

// A text that arrives in pieces looks as it does at once, and only its last block is lexed again.
const paragraph = 'Some **bold** text & `code <b>` [link](https://example.invalid/?a=1&b=2).\n\n- one\n- two\n  1. deep\n\n' +
  '| a | b |\n|:-|-:|\n| 1 | 2 |\n\n```js\nif (a < b) {}\n```\n\n> quoted\n\n# Title\n\n';
const growth = await page.evaluate(async (part) => {
  const {Markdown, markdown} = await import('/dashboard/markdown.js');
  const text = part.repeat(40);
  const lex = window.marked.Lexer.prototype.lex;
  let lexed = 0;
  window.marked.Lexer.prototype.lex = function counted(source) {
    lexed += source.length;
    return lex.call(this, source);
  };
  const live = new Markdown();
  let flushes = 0;
  for (let at = 0; at < text.length; at += 7, ++flushes) {
    live.add(text.slice(at, at + 7));
    live.flush();
  }
  window.marked.Lexer.prototype.lex = lex;
  return {same: live.element.isEqualNode(markdown(text)), perFlush: lexed / flushes, text: markdown(part).textContent};
}, paragraph);
assert.equal(growth.same, true);
assert.ok(growth.perFlush < 200, `${growth.perFlush} characters are lexed with every piece`);
assert.match(growth.text, /^Some bold text & code <b> link\./);

// A narrow window: one row of header, sampling in a sheet, alternatives at a tap, no hints for keys.
const narrow = await newPage({viewport: {width: 390, height: 800}, hasTouch: true, isMobile: true});
await narrow.page.goto(address);
await narrow.page.waitForFunction(() => document.querySelector('#state.good'));
assert.ok((await narrow.page.locator('.bar').boundingBox()).height < 56);
assert.equal(await narrow.page.isVisible('.keys >> nth=0'), false);
assert.equal(await narrow.page.isVisible('#sampling'), false);
await narrow.page.tap('[popovertarget=sampling]');
assert.equal(await narrow.page.isVisible('#sampling'), true);
await narrow.page.check('[name=probabilities]');
await narrow.page.keyboard.press('Escape');
await narrow.page.waitForSelector('#sampling', {state: 'hidden'});
await narrow.page.fill('#question', 'Rain?');
await narrow.page.tap('#send');
await narrow.page.waitForSelector('.message:not(.user):not(.live) .actions');
await narrow.page.locator('.t').nth(2).tap();
await narrow.page.waitForSelector('#token:not([hidden])');
assert.ok(await narrow.page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));

// Accessibility of an answer with every kind of block; axe has to be evaluated past the page's policy.
const axe = await readFile(library.resolve('axe-core/axe.min.js'), 'utf8');
for (const [view, text] of [[page, paragraph], [narrow.page, paragraph]]) {
  await view.route(chatRoute, (route) => route.fulfill(events(text.split(/(?= )/))));
  await view.evaluate(() => { document.querySelector('[name=probabilities]').click(); });
  await view.evaluate(() => { document.querySelector('#clear').click(); });
  await view.fill('#question', 'Blocks.');
  await view.click('#send');
  await view.waitForSelector('.message:not(.user):not(.live) .actions');
  for (const colorScheme of ['light', 'dark']) {
    await view.emulateMedia({colorScheme, reducedMotion: 'reduce'});
    const session = await view.context().newCDPSession(view);
    await session.send('Page.setBypassCSP', {enabled: true});
    await view.evaluate(axe);
    const {violations} = await view.evaluate(() => window.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}));
    assert.deepEqual(violations.map(({id, nodes}) => `${id}: ${nodes.map((node) => node.html).join(' ')}`), [], colorScheme);
    await session.detach();
  }
}

for (const list of [complaints, foreign, narrow.complaints, narrow.foreign]) assert.deepEqual(list, []);
await browser.close();
