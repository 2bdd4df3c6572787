// SPDX-License-Identifier: Apache-2.0
// Draws the prefix tree: a bar for every edge of tokens, on the line of its first child, so that a
// conversation is a line and a fork a line that leaves it.
import {byId, count, html, svg, visible} from './dom.js';

const kRow = 30;
const kBar = 18;
const kGap = 16;
const kCharacter = 7;
const kLeft = 6;
const kMaxText = 60;

// Room for the text, and the more the more tokens there are.
const barWidth = (node) => Math.max(
  24, Math.min(12 + kCharacter * visible(node.text).length, 56 + 13 * Math.sqrt(node.num_tokens), 420));

// Gives every node its place: x, y, width, and the lists of children, oldest first.
function layOut(nodes) {
  const all = new Map(nodes.map((node) => [node.id, {...node, children: []}]));
  const roots = new Map();  // by namespace
  for (const node of all.values()) {
    const parent = all.get(node.parent);
    if (parent) parent.children.push(node);
    else if (roots.has(node.namespace)) roots.get(node.namespace).push(node);
    else roots.set(node.namespace, [node]);
  }
  let row = 0;
  const order = [];  // top to bottom, parents first
  const titles = [];
  const place = (first) => {
    const pending = [[first, kLeft]];
    let fresh = false;
    while (pending.length > 0) {
      const [node, x] = pending.pop();
      if (fresh) ++row;
      fresh = node.children.length === 0;
      Object.assign(node, {x, y: row * kRow + kRow / 2, width: barWidth(node)});
      order.push(node);
      node.children.sort((a, b) => a.id - b.id);
      for (const child of [...node.children].reverse()) pending.push([child, x + node.width + kGap + 14]);
    }
    ++row;
  };
  for (const [name, list] of [...roots].sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
    if (name) titles.push({name, y: row++ * kRow + kRow / 2});
    list.sort((a, b) => a.id - b.id).forEach(place);
  }
  return {order, all, titles, height: row * kRow};
}

export class TreeView {
  constructor() {
    this.layout = {order: [], all: new Map(), titles: [], height: 0};
    this.chosen = null;  // id
    this.known = null;   // ids that were drawn before
    const box = byId('tree-box');
    box.addEventListener('keydown', (event) => this.onKey(event));
    byId('tree').addEventListener('click', (event) => {
      const id = event.target.closest('[data-id]')?.dataset.id;
      if (id) this.choose(Number(id));
    });
  }

  draw(tree, reuse) {
    this.tree = tree;
    this.layout = layOut(tree.nodes);
    const {order, titles, height} = this.layout;
    const path = new Set(reuse?.path ?? []);
    const right = Math.max(0, ...order.map((node) => node.x + node.width +
      (node.children.length ? 40 : 44 + kCharacter * Math.min(kMaxText, node.text.length))));
    const drawing = byId('tree');
    drawing.setAttribute('width', right);
    drawing.setAttribute('height', height);
    drawing.replaceChildren(
      ...titles.map(({name, y}) => svg('text', {class: 'space', x: kLeft, y: y + 4}, `namespace ${name}`)),
      ...order.flatMap((node) => this.links(node)),
      ...order.map((node) => this.drawNode(node, path.has(node.id) ? reuse : null)));
    this.known = new Set(order.map((node) => node.id));
    byId('no-tree').hidden = order.length > 0;
    drawing.style.display = order.length > 0 ? '' : 'none';
    this.describe();
  }

  links(node) {
    const x = node.x + node.width + 8;
    return node.children.map((child) => svg('path', {
      class: 'link',
      d: child.y === node.y ? `M${x} ${node.y}H${child.x}`
        : `M${x} ${node.y}V${child.y - 6}q0 6 6 6H${child.x}`}));
  }

  drawNode(node, reuse) {
    const top = node.y - kBar / 2;
    const shape = (kind, from, to) => {
      const part = (tokens) => node.width * Math.min(1, Math.max(0, (tokens - node.begin) / node.num_tokens));
      return to > from && part(to) > part(from)
        ? [svg('rect', {class: kind, x: node.x + part(from), y: top, width: part(to) - part(from), height: kBar, rx: 4})] : [];
    };
    const parts = [svg('rect', {class: 'kv', x: node.x, y: top, width: node.width, height: kBar, rx: 4})];
    let over = '';
    if (reuse) {
      parts.push(...shape('matched', node.begin, reuse.matched_tokens),
                 ...shape('reused', node.begin, reuse.reused_tokens));
      if (reuse.reused_tokens > node.begin + node.num_tokens / 2) over = 'over';
    }
    const letters = Math.floor((node.width - 10) / kCharacter);
    const text = visible(node.text);
    const isLeaf = node.children.length === 0;
    if (letters >= 3) {
      const inside = text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
      parts.push(svg('text', {class: over, x: node.x + 5, y: node.y + 4}, inside));
    }
    const dot = node.x + node.width + 8;
    if (this.tree.needs_state) {
      parts.push(node.has_state ? svg('circle', {class: 'state-dot', cx: dot, cy: node.y, r: 6})
                                : svg('circle', {class: 'tombstone', cx: dot, cy: node.y, r: 4.5}));
    }
    if (node.locks > 0) {
      parts.push(svg('use', {href: '#padlock', x: node.x + node.width - 13, y: top - 6, width: 14, height: 14}));
    }
    const hidden = node.num_children - node.children.length;
    const after = isLeaf && hidden === 0 ? `${count(node.num_tokens)}` : hidden > 0 ? `+${count(hidden)}` : '';
    if (after) parts.push(svg('text', {class: 'after', x: dot + 12, y: node.y + 4}, after));
    const fresh = this.known && !this.known.has(node.id);
    const on = node.id === this.chosen;
    return svg('g', {class: `node${on ? ' on' : ''}${fresh ? ' fresh' : ''}`, 'data-id': node.id}, ...parts);
  }

  choose(id) {
    this.chosen = id;
    for (const element of byId('tree').querySelectorAll('.node')) {
      element.classList.toggle('on', Number(element.dataset.id) === id);
    }
    byId('tree').querySelector('.node.on')?.scrollIntoView({block: 'nearest', inline: 'nearest'});
    this.describe();
  }

  // Says what is known of the chosen node, and nothing anew while that stays the same.
  describe() {
    const card = byId('node');
    const node = this.layout.all.get(this.chosen);
    const facts = [];
    if (node) {
      const end = node.begin + node.num_tokens;
      facts.push(`Tokens ${count(node.begin)} to ${count(end)} of their prompts`);
      if (this.tree.needs_state) {
        facts.push(node.has_state ? `a state after token ${count(end)}, used ${count(node.num_uses)}×`
                                  : 'no state: a tombstone');
      }
      facts.push(node.locks > 0 ? `${count(node.locks)} locks of running requests` : 'not locked');
      facts.push(`${count(node.num_children)} continuations`,
                 node.idle_ticks === 0 ? 'the last one used' : `${count(node.idle_ticks)} uses of the tree since its last`);
    }
    const text = facts.join(' · ');
    if (card.dataset.shown === `${this.chosen}${text}`) return;
    card.dataset.shown = `${this.chosen}${text}`;
    card.replaceChildren();
    if (!node) return;
    const more = node.num_tokens > node.token_ids.length ? '…' : '';
    card.append(html('p', {}, text), html('span', {class: 'mono'}, visible(node.text) + more));
  }

  onKey(event) {
    const {order, all} = this.layout;
    if (order.length === 0) return;
    const at = order.findIndex((node) => node.id === this.chosen);
    const node = order[at];
    const to = {
      ArrowDown: () => order[Math.min(at + 1, order.length - 1)],
      ArrowUp: () => order[Math.max(at - 1, 0)],
      ArrowRight: () => (node ? node.children[0] : order[0]),
      ArrowLeft: () => (node ? all.get(node.parent) : order[0]),
      Home: () => order[0],
      End: () => order.at(-1),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const next = to();
    if (next) this.choose(next.id);
  }
}
