// SPDX-License-Identifier: Apache-2.0
// The list of conversations: open, rename, export, delete; and the offer to undo.
import {byId, html, iconButton} from './dom.js';
import * as store from './store.js';

const kUndoMs = 12000;
let hideUndo;

// Offers to take back what was just done, until something else is done or some seconds have passed.
export function offerUndo(text, undo) {
  const bar = byId('undo');
  clearTimeout(hideUndo);
  const close = () => { bar.hidden = true; };
  bar.replaceChildren(html('span', {}, text), html('button', {type: 'button', onclick: () => {
    close();
    undo();
  }}, 'Undo'));
  bar.hidden = false;
  hideUndo = setTimeout(close, kUndoMs);
}

function download(chat, model) {
  const messages = chat.messages.map(({role, content, reasoning}) => ({role, content, ...(reasoning && {reasoning_content: reasoning})}));
  if (chat.system) messages.unshift({role: 'system', content: chat.system});
  const text = JSON.stringify({title: store.titleOf(chat), model, messages}, null, 2);
  const address = URL.createObjectURL(new Blob([text], {type: 'application/json'}));
  const name = store.titleOf(chat).replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40) || 'chat';
  html('a', {href: address, download: `${name}.json`}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function rename(chat, item, done) {
  const field = html('input', {type: 'text', 'aria-label': 'Name of the chat', maxlength: 80});
  field.value = store.titleOf(chat);
  let ended = false;
  const end = (keep) => {
    if (ended) return;
    ended = true;
    if (keep) done(field.value.trim());
    else done(chat.title);
  };
  field.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      end(event.key === 'Enter');
    }
  });
  field.addEventListener('blur', () => end(true));
  item.replaceChildren(field);
  field.select();
}

// Shows the list. `actions`: open(chat), renamed(chat, title), remove(chat), model().
export function show(currentId, actions) {
  byId('chat-list').replaceChildren(...store.list().map((chat) => {
    const title = store.titleOf(chat);
    const current = chat.id === currentId;
    const item = html('li', {class: current ? 'current' : null});
    item.append(
      html('button', {type: 'button', class: 'open', 'aria-current': current ? 'true' : null, title, onclick: () => actions.open(chat)}, title),
      iconButton('rename', `Rename ${title}`, () => rename(chat, item, (name) => actions.renamed(chat, name))),
      iconButton('export', `Export ${title}`, () => download(chat, actions.model())),
      iconButton('delete', `Delete ${title}`, () => actions.remove(chat)));
    return item;
  }));
}
