// SPDX-License-Identifier: Apache-2.0
// Elements, numbers and times as the page shows them.

export const byId = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const html = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);

const whole = new Intl.NumberFormat('en');
export const count = (value) => whole.format(Math.round(value));

// 1234567 is "1.2 M".
export function short(value) {
  for (const [unit, name] of [[1e9, ' G'], [1e6, ' M'], [1e3, ' k']]) {
    if (Math.abs(value) >= unit * 10 || (Math.abs(value) >= unit && unit > 1e3)) {
      return (value / unit).toFixed(value >= unit * 100 ? 0 : 1) + name;
    }
  }
  if (Math.abs(value) >= 100 || Number.isInteger(value)) return count(value);
  return value.toFixed(Math.abs(value) < 1 ? 2 : 1);
}

export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let index = 0;
  for (; value >= 1024 && index + 1 < units.length; ++index) value /= 1024;
  return `${value.toFixed(index > 0 && value < 100 ? 1 : 0)} ${units[index]}`;
}

export function seconds(value) {
  if (value === 0) return '0 s';
  if (value < 1) return `${(value * 1000).toFixed(value < 0.1 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

export const percent = (share) =>
  share > 0 && share < 0.001 ? '< 0.1 %' : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// Spaces and line ends made visible.
export const visible = (text) => text.replaceAll('\n', '⏎').replaceAll('\t', '⇥').replaceAll(' ', '·');

// A horizontal bar of a share from 0 to 1.
export function meter(share, label) {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return svg('svg', {class: 'meter', role: label ? 'img' : null, 'aria-label': label,
                     'aria-hidden': label ? null : 'true', viewBox: '0 0 100 10', preserveAspectRatio: 'none'},
             svg('rect', {width, height: 10}));
}

// A button that shows a symbol of index.html.
export const iconButton = (icon, label, onclick) =>
  html('button', {type: 'button', class: 'icon', 'aria-label': label, title: label, onclick},
       svg('svg', {viewBox: '0 0 16 16', 'aria-hidden': 'true'}, svg('use', {href: `#icon-${icon}`})));

// The clipboard of the browser is for HTTPS and localhost only.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = html('textarea', {class: 'unseen', readonly: true});
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  if (!done) throw new Error('not copied');
}

// A button that copies text() and says so.
export function copyButton(text) {
  const button = html('button', {type: 'button', class: 'small'}, 'Copy');
  button.addEventListener('click', async () => {
    button.textContent = await copy(text()).then(() => 'Copied', () => 'Not allowed');
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  return button;
}
