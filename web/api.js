// SPDX-License-Identifier: Apache-2.0
// Calls to the server that the page came from, with the key that the user typed.

const base = new URL('../', import.meta.url);  // below a proxy's prefix, too
const kKey = 'heddle-api-key';

export const getKey = () => sessionStorage.getItem(kKey) ?? '';
export function setKey(key) {
  if (key) sessionStorage.setItem(kKey, key);
  else sessionStorage.removeItem(kKey);
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
    this.needsKey = status === 401 || status === 403;
  }
}

async function call(path, {body, signal, key = getKey()} = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(new URL(path, base), {
      method: body === undefined ? 'GET' : 'POST', headers, signal,
      body: body === undefined ? undefined : JSON.stringify(body)});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server cannot be reached.');
  }
  if (response.ok) return response;
  const text = await response.text();
  // The page of a proxy is no message.
  let message = response.headers.get('Content-Type')?.includes('html') ? '' : text;
  try {
    message = JSON.parse(text).error.message;
  } catch { /* a plain text says it as it is */ }
  throw new ApiError(response.status, message || `The server answered ${response.status}.`);
}

export const getJson = async (path) => (await call(path)).json();
export const getText = async (path) => (await call(path)).text();
export const postJson = async (path, body) => (await call(path, {body})).json();
// Throws an ApiError unless the server takes this key.
export const tryKey = async (key) => { await call('v1/models', {key}); };
export const post = async (path) => (await call(path, {body: {}})).text();

// Yields the JSON of each server-sent event until [DONE].
export async function* stream(path, body, signal) {
  const response = await call(path, {body, signal});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let done;
    let value;
    try {
      ({done, value} = await reader.read());
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'The connection was lost.');
    }
    if (done) throw new ApiError(0, 'The connection ended before the answer did.');
    rest += value;
    const events = rest.split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: '))
        .map((line) => line.slice(6)).join('\n');
      if (data === '[DONE]') return;
      if (!data) continue;
      const message = JSON.parse(data);
      if (message.error) throw new ApiError(500, message.error.message);
      yield message;
    }
  }
}
