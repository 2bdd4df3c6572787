// SPDX-License-Identifier: Apache-2.0
// The dialog for the API key. A key is tried before it is kept.
import {getKey, setKey, tryKey} from './api.js';
import {byId} from './dom.js';

let declined = false;

// Opens the dialog. `again`: also where the user closed it without a key before.
export function askForKey(reason = '', again = true) {
  const dialog = byId('key-dialog');
  if (dialog.open || (declined && !again)) return;
  byId('key').value = '';
  say(reason);
  dialog.showModal();
}

function say(text) {
  byId('key-error').textContent = text;
  byId('key-error').hidden = !text;
}

const label = () => { byId('key-label').textContent = getKey() ? 'API key: set' : 'API key'; };

// `changed` is called once a key is kept or forgotten.
export function setUpKey(changed) {
  const dialog = byId('key-dialog');
  label();
  const done = (key) => {
    setKey(key);
    declined = false;
    label();
    dialog.close();
    changed();
  };
  byId('key-button').addEventListener('click', () => askForKey());
  byId('key-cancel').addEventListener('click', () => dialog.close());
  byId('key-forget').addEventListener('click', () => done(''));
  dialog.addEventListener('close', () => {
    declined = true;
    byId('key').value = '';
  });
  byId('key-form').addEventListener('submit', async (event) => {
    event.preventDefault();
    const key = byId('key').value.trim();
    if (!key) return say('Type the key, or press Cancel.');
    try {
      await tryKey(key);
      done(key);
    } catch (error) {
      say(error.needsKey ? `The server refuses this key: ${error.message}` : error.message);
      byId('key').select();
    }
  });
}
