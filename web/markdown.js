// SPDX-License-Identifier: Apache-2.0
// Markdown as nodes of the page's own making. The lexer of the packaged library `marked` splits the text; markup of
// the text itself is shown as it is written, images are shown as links, and nothing but kElements is ever made.
import './marked.js';  // sets globalThis.marked
import {copyButton, html} from './dom.js';

// Each element with the attributes that it may have.
export const kElements = {
  p: [], h3: ['class'], ul: [], ol: ['start'], li: [], blockquote: [], hr: [], br: [], strong: [], em: [], del: [],
  code: [], pre: ['tabindex'], a: ['href', 'rel', 'target'], div: ['class', 'role', 'aria-label', 'tabindex'],
  span: [], button: ['type', 'class'], table: [], thead: [], tbody: [], tr: [], th: ['class', 'scope'], td: ['class'],
};

const kMaxDepth = 24;
const kMaxBlock = 200000;  // characters; a longer block is shown as plain text
const kOptions = {...globalThis.marked.getDefaults(), gfm: true, mangle: false};
const kEntities = {amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', hellip: '…',
                   mdash: '—', ndash: '–', times: '×', rarr: '→', larr: '←', deg: '°', euro: '€'};

// The lexer escapes its texts for HTML, which nodes do not want.
const plain = (text) => text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,8}));/gi, (all, decimal, hex, name) => {
  if (name) return Object.hasOwn(kEntities, name) ? kEntities[name] : all;
  const code = decimal ? Number(decimal) : parseInt(hex, 16);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
});

function link(token, depth) {
  const children = token.type === 'image' ? [plain(token.text) || 'image'] : inline(token, depth);
  let url;
  try {
    url = new URL(plain(token.href));
  } catch {
    return html('span', {}, ...children);  // relative, or no address at all
  }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return html('span', {}, ...children);
  return html('a', {href: url.href, rel: 'noopener noreferrer', target: '_blank'}, ...children);
}

function inline(token, depth) {
  if (!token.tokens || depth > kMaxDepth) return [plain(token.text ?? token.raw)];
  return token.tokens.map((part) => {
    switch (part.type) {
      case 'strong': case 'em': case 'del': return html(part.type, {}, ...inline(part, depth + 1));
      case 'codespan': return html('code', {}, plain(part.text));
      case 'link': case 'image': return link(part, depth + 1);
      case 'br': return html('br');
      case 'html': return /^<br\s*\/?>$/i.test(part.raw) ? html('br') : part.raw;
      default: return part.tokens ? html('span', {}, ...inline(part, depth + 1)) : plain(part.text ?? part.raw);
    }
  });
}

function codeBlock({text, lang}) {
  return html('div', {class: 'code'},
              html('div', {class: 'code-head'}, html('span', {}, plain(lang ?? '').split(/\s/)[0].slice(0, 40)), copyButton(() => text)),
              html('pre', {tabindex: '0'}, html('code', {}, text)));
}

function table({header, align, rows}, depth) {
  const cell = (name, content, index) => html(
    name, {class: align[index], scope: name === 'th' ? 'col' : null}, ...inline(content, depth + 1));
  return html('div', {class: 'table', role: 'region', 'aria-label': 'Table', tabindex: '0'}, html(
    'table', {},
    html('thead', {}, html('tr', {}, ...header.map((content, index) => cell('th', content, index)))),
    html('tbody', {}, ...rows.map((row) => html('tr', {}, ...row.map((content, index) => cell('td', content, index)))))));
}

function listItem(item, depth) {
  const mark = item.task ? [item.checked ? '☑ ' : '☐ '] : [];
  return html('li', {}, ...mark, ...blocks(item.tokens, depth + 1));
}

function block(token, depth) {
  if (depth > kMaxDepth) return html('p', {}, token.raw);
  switch (token.type) {
    case 'space': case 'def': return null;
    case 'heading': return html('h3', {class: `depth-${token.depth}`}, ...inline(token, depth));
    case 'code': return codeBlock(token);
    case 'hr': return html('hr');
    case 'blockquote': return html('blockquote', {}, ...blocks(token.tokens, depth + 1));
    case 'table': return table(token, depth);
    case 'list': {
      const start = token.ordered && Number(token.start) !== 1 ? Number(token.start) : null;
      return html(token.ordered ? 'ol' : 'ul', {start}, ...token.items.map((item) => listItem(item, depth)));
    }
    case 'text': return html('span', {}, ...inline(token, depth));  // in a tight list
    case 'html': return html('p', {}, token.raw);
    default: return html('p', {}, ...inline(token, depth));
  }
}

const blocks = (tokens, depth) => tokens.map((token) => block(token, depth));

function lex(text) {
  try {
    if (text.length <= kMaxBlock) return new globalThis.marked.Lexer({...kOptions}).lex(text);
  } catch { /* nested too deep: shown as it is */ }
  return [{type: 'html', raw: text}];
}

// A text that grows. Only its last block can change with what comes next, so only that is lexed again.
export class Markdown {
  constructor() {
    this.element = html('div', {class: 'text markdown'});
    this.open = '';       // the text of the last block
    this.openNode = null;
  }

  add(text) { this.open += text; }

  // Shows what was added. Cost: of the last block and what was added.
  flush() {
    const tokens = lex(this.open);
    const last = tokens.findLastIndex(({type}) => type !== 'space');
    this.openNode?.remove();
    this.openNode = null;
    const closed = last > 0 ? tokens.slice(0, last) : [];
    const length = closed.reduce((sum, {raw}) => sum + raw.length, 0);
    // The lexer replaces tabs and line ends: where lengths then differ, all of it stays open.
    const agree = closed.map(({raw}) => raw).join('') === this.open.slice(0, length);
    const nodes = blocks(tokens, 0).filter(Boolean);
    if (agree) {
      this.open = this.open.slice(length);
      this.openNode = last >= 0 ? nodes.at(-1) : null;
      this.element.append(...nodes);
    } else {
      this.openNode = html('div', {class: 'block'}, ...nodes);
      this.element.append(this.openNode);
    }
  }
}

export function markdown(text) {
  const whole = new Markdown();
  whole.add(text);
  whole.flush();
  return whole.element;
}
