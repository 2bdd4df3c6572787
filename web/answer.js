// SPDX-License-Identifier: Apache-2.0
// An answer on the page while it arrives and afterwards: reasoning, text, tokens, and how it went.
import {byId, count, html, seconds} from './dom.js';
import {Markdown, markdown} from './markdown.js';
import {Tokens} from './tokens.js';

const reasoningTitle = (time) => (time ? `Thought for ${seconds(time)}` : 'Reasoning');

function reasoningElement() {
  const text = html('div', {class: 'text'});
  const title = html('summary', {}, 'Thinking');
  return {element: html('details', {class: 'reasoning', hidden: true, open: true}, title, text), title, text};
}

// Keeps the end of the conversation in sight where it was so before `change`.
export function followEnd(change) {
  const list = byId('messages');
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  change();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

export class LiveAnswer {
  // `message` is filled as the answer arrives.
  constructor(message, withTokens) {
    this.message = message;
    this.start = performance.now();
    this.first = 0;
    this.last = 0;
    this.numTokens = 0;
    this.reasoning = reasoningElement();
    this.text = new Markdown();
    this.tokens = withTokens ? new Tokens() : null;
    this.status = html('p', {class: 'meta status', role: 'status'});
    this.element = html('article', {class: `message live${withTokens ? ' has-tokens' : ''}`, 'aria-label': 'Heddle'},
                        this.reasoning.element, this.text.element, this.tokens?.element, this.status);
  }

  say(text) { this.status.textContent = text; }

  add({content, reasoning, entries}) {
    this.last = performance.now();
    if (!this.first) this.say('');
    this.first ||= this.last;
    this.numTokens += Math.max(1, entries.length);
    if (reasoning) {
      this.message.reasoning = (this.message.reasoning ?? '') + reasoning;
      this.message.reasoningSeconds = (this.last - this.start) / 1000;
    }
    if (content) {
      this.message.content += content;
      this.text.add(content);
      // The last of several tokens in one event completes a character: it stands for all of them.
      this.tokens?.add(content, entries.at(-1));
    }
    // Tokens may come faster than the page can be laid out.
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  flush() {
    this.frame = null;
    followEnd(() => {
      const {message, reasoning} = this;
      if (message.reasoning) {
        reasoning.element.hidden = false;
        const shown = reasoning.text.textContent.length;
        reasoning.text.append(message.reasoning.slice(shown));
        if (!message.content) reasoning.title.textContent = `Thinking · ${seconds(message.reasoningSeconds)}`;
      }
      if (!message.content) return;
      if (!this.answering) {
        this.answering = true;
        reasoning.element.open = false;
        reasoning.title.textContent = reasoningTitle(message.reasoningSeconds);
      }
      this.tokens?.flush();
      // Out of sight below the tokens, it is shown when all of it is there.
      if (!this.tokens || !byId('chat').classList.contains('tinted')) this.text.flush();
    });
  }

  end(usage, finish) {
    cancelAnimationFrame(this.frame);
    this.flush();
    this.text.element.replaceWith(markdown(this.message.content));  // once more as a whole: with links defined later
    this.tokens?.end();
    this.element.classList.remove('live');
    this.reasoning.element.open = false;
    this.reasoning.title.textContent = reasoningTitle(this.message.reasoningSeconds);
    this.status.remove();
    if (this.numTokens > 0 || finish) this.message.meta = this.describe(usage, finish);
  }

  describe(usage, finish) {
    const tokens = usage?.completion_tokens ?? this.numTokens;
    const parts = [`${count(tokens)} tokens`];
    const rest = (this.last - this.first) / 1000;
    if (this.first && tokens > 1 && rest > 0) parts.push(`${count((tokens - 1) / rest)} tokens/s`);
    if (this.first) parts.push(`first after ${seconds((this.first - this.start) / 1000)}`);
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      parts.push(`prompt of ${count(usage.prompt_tokens)}, ${count(cached)} from the cache`);
    }
    if (finish) parts.push({stop: 'ended by itself', length: 'cut at the limit'}[finish] ?? finish);
    return parts.join(' · ');
  }
}

// A message that is complete; its buttons are added by the conversation.
export function messageElement(message) {
  if (message.role === 'user') {
    return html('article', {class: 'message user', 'aria-label': 'You'}, html('div', {class: 'text'}, message.content));
  }
  const reasoning = reasoningElement();
  reasoning.element.hidden = !message.reasoning;
  reasoning.element.open = false;
  reasoning.title.textContent = reasoningTitle(message.reasoningSeconds);
  reasoning.text.append(message.reasoning ?? '');
  return html('article', {class: 'message', 'aria-label': 'Heddle'}, reasoning.element, markdown(message.content));
}
