// SPDX-License-Identifier: Apache-2.0
// Shared by the programs: the libraries that `./run setup --clients` installed, and the server's
// address from the command line.
import {createRequire} from 'node:module';
import {resolve} from 'node:path';

export const library = createRequire(resolve(process.env.HEDDLE_CLIENTS ?? 'build/clients') + '/');
export const address = process.argv[2] ?? 'http://127.0.0.1:30000';
export const question = [{role: 'user', content: 'Tell me a story about a cat.'}];
