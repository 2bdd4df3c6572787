// SPDX-License-Identifier: Apache-2.0
// The description at /openapi.json: a public validator takes it as OpenAPI 3.1, the client that is generated from it
// compiles and gets answers, and a wrong field does not compile.
import assert from 'node:assert/strict';
import {pathToFileURL} from 'node:url';
import {address, library, question} from './client.mjs';

const {Validator} = await import(pathToFileURL(library.resolve('@seriousme/openapi-schema-validator')).href);
const {default: types, astToString} = library('openapi-typescript');
const ts = library('typescript');

const description = await (await fetch(`${address}/openapi.json`)).json();
const validator = new Validator();
const {valid, errors} = await validator.validate(structuredClone(description));
assert.ok(valid, JSON.stringify(errors));
assert.equal(validator.version, '3.1');

const files = {
  '/api.ts': astToString(await types(structuredClone(description), {defaultNonNullable: false})),
  '/client.ts': `
    import type {components, operations, paths} from './api';
    type Body<Path extends keyof paths> =
      paths[Path] extends {post: {requestBody?: {content: {'application/json': infer B}}}} ? B : never;
    const address: string = ${JSON.stringify(address)};
    async function post<Path extends keyof paths>(path: Path, body: Body<Path>): Promise<any> {
      const answer = await fetch(address + path,
        {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    }
    const messages = ${JSON.stringify(question)};
    export const chat = await post('/v1/chat/completions', {messages, max_tokens: 4, temperature: 0.5});
    export const text = await post('/generate', {text: 'Once', sampling_params: {max_new_tokens: 4}});
    export const tokens = await post('/tokenize', {prompt: ['a', 'b']});
    export const cancelled: operations['post_v1_batches_batch_id_cancel']['parameters']['path'] = {batch_id: 'x'};
    export const pause: components['schemas']['Pause'] = {mode: 'abort'};
  `,
  '/wrong.ts': `
    import type {components} from './api';
    export const heat: components['schemas']['Chat'] = {messages: [], temperature: 'hot'};
    export const mode: components['schemas']['Pause'] = {mode: 'later'};
    export const text: components['schemas']['Tokenize']['prompt'] = true;
  `,
};

// The text of a file as JavaScript, and the lines that the compiler complains of.
function compile(name) {
  const options = {strict: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ES2022,
    moduleResolution: ts.ModuleResolutionKind.Bundler, lib: ['lib.es2022.d.ts', 'lib.dom.d.ts'], types: []};
  const host = ts.createCompilerHost(options);
  const {getSourceFile, fileExists, readFile} = host;
  host.getSourceFile = (file, version) =>
    (file in files ? ts.createSourceFile(file, files[file], version) : getSourceFile(file, version));
  host.fileExists = (file) => file in files || fileExists(file);
  host.readFile = (file) => files[file] ?? readFile(file);
  let code = '';
  host.writeFile = (file, text) => { if (file === name.replace('.ts', '.js')) code = text; };
  const program = ts.createProgram([name], options, host);
  program.emit();
  const complaints = ts.getPreEmitDiagnostics(program).map(({file, start, messageText}) => {
    const line = file?.getLineAndCharacterOfPosition(start).line;
    return `${file?.fileName}:${line}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
  });
  return {code, complaints};
}

const {code, complaints} = compile('/client.ts');
assert.deepEqual(complaints, []);
const {chat, text, tokens} = await import(`data:text/javascript,${encodeURIComponent(code)}`);
assert.equal(chat.object, 'chat.completion');
assert.equal(text.output_ids.length, 4);
assert.equal(tokens.tokens.length, 2);

const wrong = compile('/wrong.ts').complaints.map((line) => line.split(':')[1]);
assert.deepEqual(wrong, ['2', '3', '4']);
