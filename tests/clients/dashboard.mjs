// SPDX-License-Identifier: Apache-2.0
// The dashboard in Chromium: a chat whose tokens arrive and can be looked at, one that is stopped,
// live requests, the tree that grows, settings, keys, and axe's accessibility checks of every view
// in light and dark. HEDDLE_SCREENSHOTS names a folder to leave pictures in.
import assert from 'node:assert/strict';
import {readFile} from 'node:fs/promises';
import {browser, newPage} from './browser.mjs';
import {address, library, question} from './client.mjs';

const axe = await readFile(library.resolve('axe-core/axe.min.js'), 'utf8');
const pictures = process.env.HEDDLE_SCREENSHOTS;
const {context, page, complaints, foreign} = await newPage({viewport: {width: 1280, height: 800}});

async function open(view) {
  await page.click(`nav a[href="#${view}"]`);
  await page.waitForSelector(`#${view}:not([hidden])`);
}

// Past the page's policy, as axe has to be evaluated in the page.
async function checkAccessibility(name) {
  const session = await context.newCDPSession(page);
  await session.send('Page.setBypassCSP', {enabled: true});
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => window.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}));
  assert.deepEqual(violations.map(({id, nodes}) => `${id}: ${nodes.map((node) => node.html).join(' ')}`), [], name);
  await session.detach();
}

async function checkBothThemes(view) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({colorScheme, reducedMotion: 'reduce'});
    await checkAccessibility(`${view}, ${colorScheme}`);
    if (pictures) await page.screenshot({path: `${pictures}/${view}-${colorScheme}.png`});
  }
}

async function ask(text) {
  await page.fill('#question', text);
  await page.press('#question', 'Enter');
}

const lastAnswer = () => page.locator('.message:not(.user)').last();
const answered = () => page.waitForFunction(
  () => document.querySelector('.message:last-child .actions .meta')?.textContent.includes('tokens'));

const text = question[0].content;

// A chat: each token shows what else was likely.
const response = await page.goto(address);
assert.match(response.headers()['content-security-policy'], /default-src 'none'/);
await page.waitForFunction(() => document.querySelector('#state.good')?.textContent.includes('running'));
await page.check('[name=probabilities]');
await page.fill('[name=temperature]', '1');
await page.fill('[name=seed]', '7');
await page.fill('[name=max_completion_tokens]', '120');
await ask(text);
await answered();
assert.ok(await lastAnswer().locator('.t').count() > 20);
await lastAnswer().locator('.t').nth(1).hover();
await page.waitForSelector('#token:not([hidden])');
assert.equal(await page.locator('#token tr.chosen').count(), 1);
assert.ok(await page.locator('#token tr').count() >= 5);
await page.mouse.move(5, 5);
await lastAnswer().locator('.tokens').focus();
for (let i = 0; i < 9; ++i) await page.keyboard.press('ArrowRight');
for (let i = 0; i < 99 && await page.locator('.t.p5.on').count() === 0; ++i) await page.keyboard.press('ArrowRight');
assert.equal(await lastAnswer().locator('.t.on').count(), 1);
assert.match(await page.textContent('#token'), /%/);
assert.ok((await page.locator('#token').boundingBox()).height < 260);
await checkBothThemes('chat');
await page.keyboard.press('Escape');
assert.equal(await page.isVisible('#token'), false);

// A new chat that asks the same starts from the cache.
await page.click('#clear');
assert.equal(await page.locator('.message').count(), 0);
await ask(text);
await answered();
assert.match(await lastAnswer().locator('.actions .meta').textContent(), / [1-9]\d* from the cache/);

// The tree has it, and says what a prompt that begins alike would reuse.
await open('cache');
await page.waitForSelector('#tree .node');
const nodesBefore = await page.locator('#tree .node').count();
await page.fill('#prompt', text);
await page.waitForFunction(() => /tokens would be reused \(\d/.test(document.querySelector('#reuse').textContent));
assert.doesNotMatch(await page.textContent('#reuse'), /^0 of/);
assert.ok(await page.locator('#tree .reused').count() > 0);
await page.locator('#tree-box').focus();
await page.keyboard.press('ArrowDown');
assert.match(await page.textContent('#node'), /Tokens 0 to/);

// It grows by another conversation.
await open('chat');
await page.click('#clear');
await page.fill('[name=max_completion_tokens]', '24');
await page.fill('[name=system]', 'You are a friendly teller of stories who also solves small word problems. '.repeat(5));
for (const other of ['Tell me a story about a dog.', 'Tell me about the sea.', 'What is 12 plus 30?']) {
  await ask(other);
  await answered();
  await page.click('#clear');
}
await open('cache');
await page.waitForFunction((before) => document.querySelectorAll('#tree .node').length > before, nodesBefore);
await page.fill('#prompt', 'Tell me a story about a bird.');
await page.waitForFunction(() => /^[1-9]/.test(document.querySelector('#reuse').textContent));
await page.locator('#tree-box').focus();
await page.keyboard.press('End');
await page.waitForFunction(() => document.querySelector('#node').textContent.includes('Tokens'));
await checkBothThemes('cache');

// Live requests: one of another client, with its phase and priority, aborted from here. From here on the engine
// computes a little at a time, so that no answer ends before a slow browser has looked at it.
const headers = {'Content-Type': 'application/json'};
async function post(path, body) {
  const answer = await fetch(address + path, {method: 'POST', headers, body: JSON.stringify(body)});
  assert.equal(answer.status, 200, await answer.text());
}
const pause = () => post('/pause_generation', {mode: 'in_place'});
const goOn = () => post('/continue_generation', {});

async function computeUntil(holds, argument) {
  for (let turns = 0; !await page.evaluate(holds, argument); ++turns) {
    assert.ok(turns < 3000, `never seen: ${holds}`);
    await goOn();
    await pause();
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
}

await open('traffic');
await pause();
const endless = (rid, signal) => fetch(`${address}/v1/chat/completions`, {method: 'POST', headers, signal, body: JSON.stringify(
  {messages: question, stream: true, ignore_eos: true, max_tokens: 7000, rid, user: 'alice'})});
const shown = new AbortController();
endless('to-show', shown.signal).then((answer) => answer.text()).catch(() => {});
await computeUntil(() => document.querySelector('tr[data-rid=to-show] .phase.decode'));
assert.match(await page.textContent('tr[data-rid=to-show]'), /alice/);
await page.waitForFunction(() => /^[\d.,]+( k)?\/s/.test(document.querySelector('.plot .now').textContent));
if (pictures) {
  await goOn();
  await page.waitForTimeout(8000);
  await pause();
}
await checkBothThemes('traffic');
shown.abort();
const left = new AbortController();
const streams = [endless('to-abort'), endless('to-leave', left.signal)].map((call) => call.then((answer) => answer.text()));
streams[1].catch(() => {});
await computeUntil(() => ['to-abort', 'to-leave'].every((rid) => document.querySelector(`tr[data-rid=${rid}] .phase.decode`)));
await page.click('tr[data-rid=to-abort] button');
await page.waitForSelector('tr[data-rid=to-abort]', {state: 'detached'});
assert.match(await streams[0], /"finish_reason":"abort"/);
left.abort();
await page.waitForSelector('#requests tr', {state: 'detached'});

// Tokens arrive one by one, and an answer that is stopped leaves nothing running.
const numArrived = () => page.locator('.message.live .t').count();
const moreThan = (before) => document.querySelectorAll('.message.live .t').length > before;
await open('chat');
await page.fill('[name=max_completion_tokens]', '7000');
await page.check('[name=ignore_eos]');
await ask(text);
await computeUntil(moreThan, 0);
await computeUntil(moreThan, await numArrived());
await page.click('#stop');
await page.waitForFunction(() => document.querySelector('.message:last-child .actions .meta')?.textContent.includes('stopped'));
await open('traffic');
await page.waitForFunction(() => document.querySelector('#request-count').textContent === '0');

// A new chat begun while an answer arrives has nothing of the old one.
await open('chat');
await page.click('#clear');  // what was stopped may leave no room for another long answer
await ask(text);
await computeUntil(moreThan, 0);
await page.click('#clear');
await page.waitForSelector('#send:not([hidden])');
await goOn();
await page.fill('[name=max_completion_tokens]', '8');
await page.fill('[name=system]', '');
const asked = page.waitForRequest((request) => request.url().endsWith('/v1/chat/completions'));
await ask(text);
assert.deepEqual(JSON.parse((await asked).postData()).messages, [{role: 'user', content: text}]);
await answered();

// Errors of the server are shown.
await open('chat');
await page.click('#clear');
await page.fill('[name=temperature]', '1');
await page.fill('[name=top_k]', '-2');
await ask(text);
await page.waitForFunction(() => document.querySelector('.failed')?.textContent.includes('top_k'));
const refused = complaints.splice(0);
assert.ok(refused.every((line) => line.includes('400')), refused.join('\n'));
await page.fill('[name=top_k]', '');
await page.uncheck('[name=ignore_eos]');

// Settings, and the filter.
await open('server');
await page.waitForFunction(() => document.querySelectorAll('#settings tr').length > 30);
await checkBothThemes('server');
await page.fill('#filter', 'page_size');
assert.equal(await page.locator('#settings tr').count(), 1);

// A key is sent and kept for this tab alone.
await page.click('#key-button');
await checkAccessibility('key');
await page.fill('#key', 'some-key');
await page.press('#key', 'Enter');
const sent = await page.waitForRequest((request) => request.url().endsWith('/health'));
assert.equal(sent.headers().authorization, 'Bearer some-key');
assert.equal(await page.evaluate(() => Object.keys(localStorage).concat(Object.values(localStorage)).join().includes('some-key')), false);
assert.equal(await page.evaluate(() => sessionStorage.getItem('heddle-api-key')), 'some-key');

// A narrow window has no horizontal scroll bar.
await page.setViewportSize({width: 390, height: 800});
for (const view of ['chat', 'traffic', 'cache', 'server']) {
  await open(view);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(overflow <= 0, `${view} is ${overflow} pixels too wide`);
  if (pictures) await page.screenshot({path: `${pictures}/${view}-narrow.png`});
}

assert.deepEqual(complaints, []);
assert.deepEqual(foreign, []);
await browser.close();
