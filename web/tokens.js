// SPDX-License-Identifier: Apache-2.0
// An answer as its tokens, tinted by how unlikely each was. A token shows its alternatives under the mouse, at a tap,
// or with the arrow keys while the text has the focus.
import {byId, html, meter, percent, visible} from './dom.js';

// How unlikely a token was, in six steps.
function tint(logprob) {
  const p = Math.exp(logprob);
  return p > 0.9 ? 0 : p > 0.7 ? 1 : p > 0.5 ? 2 : p > 0.3 ? 3 : p > 0.1 ? 4 : 5;
}

function showCard(span, entry) {
  const card = byId('token');
  const rows = entry.top_logprobs.map((other) => [other, other.token === entry.token]);
  if (!rows.some(([, chosen]) => chosen)) rows.push([entry, true]);
  card.replaceChildren(
    html('span', {}, html('span', {class: 'mono'}, visible(entry.token)), ' had ',
         html('strong', {}, percent(Math.exp(entry.logprob)))),
    html('table', {}, html('tbody', {}, ...rows.map(([other, chosen]) => {
      const p = Math.exp(other.logprob);
      return html('tr', {class: chosen ? 'chosen' : null}, html('td', {}, visible(other.token)),
                  html('td', {class: 'bar-cell'}, meter(p)), html('td', {}, percent(p)));
    }))));
  card.hidden = false;
  const at = span.getBoundingClientRect();
  const left = Math.min(at.left, window.innerWidth - card.offsetWidth - 12);
  const below = at.bottom + 8;
  const fits = below + card.offsetHeight < window.innerHeight;
  card.style.left = `${Math.max(8, left)}px`;
  card.style.top = `${fits ? below : Math.max(8, at.top - card.offsetHeight - 8)}px`;
}

export const hideCard = () => { byId('token').hidden = true; };

export class Tokens {
  constructor() {
    this.element = html('div', {class: 'text tokens', tabindex: '0', role: 'group', 'aria-label': 'Answer'});
    this.entries = [];
    this.spans = [];
    this.indices = new Map();  // from a span to its index
    this.active = -1;
    this.pending = [];
    const at = (event) => this.indices.get(event.target) ?? -1;
    this.element.addEventListener('pointerover', (event) => {
      if (event.pointerType === 'mouse' && at(event) >= 0) this.activate(at(event));
    });
    this.element.addEventListener('click', (event) => this.activate(at(event)));
    this.element.addEventListener('pointerleave', (event) => {
      if (event.pointerType === 'mouse') this.activate(-1);
    });
    this.element.addEventListener('blur', () => this.activate(-1));
    this.element.addEventListener('keydown', (event) => this.onKey(event));
  }

  add(text, entry) {
    if (!entry) {
      this.pending.push(document.createTextNode(text));
      return;
    }
    const span = html('span', {class: `t p${tint(entry.logprob)}`}, text);
    this.indices.set(span, this.spans.length);
    this.spans.push(span);
    this.entries.push(entry);
    this.pending.push(span);
  }

  // Paragraphs are elements of their own: those out of sight cost nothing.
  flush() {
    for (const node of this.pending) {
      if (!this.line) this.element.append(this.line = html('div', {class: 'line'}));
      this.line.append(node);
      if (node.textContent.endsWith('\n')) this.line = null;
    }
    this.pending = [];
  }

  end() {
    this.flush();
    this.element.setAttribute(
      'aria-label', `Answer of ${this.spans.length} tokens; the arrow keys go from token to token`);
  }

  activate(index) {
    this.spans[this.active]?.classList.remove('on');
    this.active = index;
    const span = this.spans[index];
    if (!span) return hideCard();
    span.classList.add('on');
    showCard(span, this.entries[index]);
  }

  onKey(event) {
    const last = this.spans.length - 1;
    const to = {ArrowRight: Math.min(this.active + 1, last), ArrowLeft: Math.max(this.active - 1, 0),
                Home: 0, End: last, Escape: -1}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.spans[to]?.scrollIntoView({block: 'nearest'});
    this.activate(to);
  }
}
