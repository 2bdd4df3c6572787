// SPDX-License-Identifier: Apache-2.0
// A page of Chromium on the server that is tested; ends the program where there is no Chromium.
import {existsSync} from 'node:fs';
import {address, library} from './client.mjs';

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
  .find((path) => existsSync(path));
if (!executablePath) {
  console.log('skipped: no Chromium');
  process.exit(0);
}

export const browser = await library('playwright-core').chromium.launch({executablePath, args: ['--no-sandbox']});

// A page with what it complained of, and what it loaded from elsewhere.
export async function newPage(options) {
  const context = await browser.newContext({bypassCSP: false, ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  const complaints = [];
  const foreign = [];
  page.on('console', (message) => { if (message.type() === 'error') complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.origin !== new URL(address).origin) foreign.push(request.url());
  });
  return {context, page, complaints, foreign};
}
