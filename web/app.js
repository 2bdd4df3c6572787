// SPDX-License-Identifier: Apache-2.0
// The page: which view is shown, the state of the server and the theme.
import {getJson} from './api.js';
import {byId} from './dom.js';
import {askForKey, setUpKey} from './key.js';
import * as chat from './chat.js';
import * as traffic from './traffic.js';
import * as cache from './cache.js';
import * as server from './server.js';

const views = {chat, traffic, cache, server};
const kPeriodMs = 1000;
let shown = '';

const notice = byId('notice');
function say(message) {
  notice.textContent = message;
  notice.hidden = !message;
}

// Shows the error of a view until a call of it goes well again.
async function refresh() {
  const view = shown;
  try {
    await views[view].refresh?.();
    if (view === shown) say('');
  } catch (error) {
    if (view !== shown) return;
    if (error.status === 401) askForKey(error.message, false);
    say(error.needsKey ? `${error.message} Use the button “API key” above.` : error.message);
  }
}

async function refreshState() {
  const state = byId('state');
  let health;
  try {
    health = await getJson('health');
  } catch (error) {
    health = {status: error.message};
  }
  const good = health.status === 'ok';
  state.className = `state ${good ? 'good' : 'bad'}`;
  const text = good ? `running · ${health.device}` : health.status;
  if (state.textContent !== text) state.textContent = text;
}

// Polls only while the page is visible.
async function poll() {
  if (!document.hidden) await Promise.all([refreshState(), traffic.sample(), refresh()]);
  setTimeout(poll, kPeriodMs);
}

function show() {
  const name = location.hash.slice(1);
  if (name === 'main') return;  // the link that skips the bar
  const moved = shown !== '';
  shown = name in views ? name : 'chat';
  for (const view of Object.keys(views)) byId(view).hidden = view !== shown;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === `#${shown}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${shown[0].toUpperCase()}${shown.slice(1)} · Heddle`;
  say('');
  if (moved) byId('main').focus({preventScroll: true});
  refresh();
}

function setUpTheme() {
  const themes = ['auto', 'light', 'dark'];
  const button = byId('theme-button');
  const use = (theme) => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    byId('theme-label').textContent = `Theme: ${theme}`;
    localStorage.setItem('heddle-theme', theme);
  };
  use(localStorage.getItem('heddle-theme') ?? 'auto');
  button.addEventListener('click', () => {
    const now = document.documentElement.dataset.theme ?? 'auto';
    use(themes[(themes.indexOf(now) + 1) % themes.length]);
  });
}

setUpTheme();
setUpKey(() => {
  chat.forgetModel();
  refresh();
});
for (const view of Object.values(views)) view.setUp?.();
window.addEventListener('hashchange', show);
show();
poll();
