// SPDX-License-Identifier: Apache-2.0
// 200 texts that a model may be made to write, to bring markup, scripts or addresses into a page that shows Markdown.

// {hit} is what runs; {url} an address that would be loaded.
const markup = [
  '<script>HIT</script>', '<SCRIPT SRC=URL></SCRIPT>', '<img src=x onerror=HIT>', '<img src="URL">', '<svg onload=HIT>',
  '<svg><script>HIT</script></svg>', '<iframe src="javascript:HIT"></iframe>', '<iframe srcdoc="<script>parent.HIT</script>"></iframe>',
  '<body onload=HIT>', '<details open ontoggle=HIT>x</details>', '<video><source onerror=HIT></video>', '<audio src=URL autoplay>',
  '<a href="javascript:HIT">x</a>', '<form action=URL><button>x</button></form>', '<input autofocus onfocus=HIT>',
  '<style>@import "URL";</style>', '<link rel=stylesheet href=URL>', '<meta http-equiv=refresh content="0;url=URL">', '<base href=URL>',
  '<object data=URL></object>', '<embed src=URL>', '<math><mtext><script>HIT</script></mtext></math>', '<p style="background:url(URL)">x</p>',
  '<div id="messages">x</div>', '<template><script>HIT</script></template>', '<noscript><p title="</noscript><img src=x onerror=HIT>">',
  '<!--><img src=x onerror=HIT>-->', '<![CDATA[<img src=x onerror=HIT>]]>', '<?php HIT ?>', '<x onclick=HIT>y</x>',
  '<br onmouseover=HIT>', '<b\nonclick=HIT>x</b>', '<img/src=x/onerror=HIT>', '<<img src=x onerror=HIT>>', '<marquee onstart=HIT>x</marquee>',
];
const links = [
  '[x](javascript:HIT)', '[x](JaVaScRiPt:HIT)', '[x](java\tscript:HIT)', '[x](&#106;avascript:HIT)', '[x](&#x6A;avascript:HIT)',
  '[x](javascript&colon;HIT)', '[x](<javascript:HIT>)', '[x]( javascript:HIT)', '[x](\u0001javascript:HIT)', '[x](data:text/html,<script>HIT</script>)',
  '[x](vbscript:HIT)', '[x](file:///etc/passwd)', '[x](blob:URL)', '[x](//example.invalid)', '[x](/flush_cache)', '[x](#server)', '[x](URL "a\\" onclick=HIT")',
  '[x](URL"onclick="HIT)', '![x](javascript:HIT)', '![x](URL)', '![x" onerror="HIT](URL)', '[![x](URL)](javascript:HIT)', '<javascript:HIT>',
  '<URL"onclick=HIT>', '[x][r]\n\n[r]: javascript:HIT', '[x][r]\n\n[r]: <javascript:HIT> "t"', '[<img src=x onerror=HIT>](URL)', '[`x`](javascript:HIT)',
  '[x](URL\\"onmouseover=HIT)', '![x][r]\n\n[r]: URL "a\'onerror=HIT"',
];
const blocks = [
  '```"><img src=x onerror=HIT>\nx\n```', '```js onload=HIT\n</code></pre><script>HIT</script>\n```', '    </pre><script>HIT</script>',
  '# <img src=x onerror=HIT>', '> <script>HIT</script>', '- <img src=x onerror=HIT>', '1. <svg onload=HIT>', '- [x] <img src=x onerror=HIT>',
  '|a|<img src=x onerror=HIT>|\n|-|-|\n|b|[x](javascript:HIT)|', '|a|\n|:-" onclick="HIT|\n|b|', '`<img src=x onerror=HIT>`', '**<img src=x onerror=HIT>**',
  '*[x](javascript:HIT)*', '~~<svg onload=HIT>~~', '&lt;script&gt;HIT&lt;/script&gt;', '\\<script>HIT\\</script>', '99999999999. x', '1"onclick="HIT. x',
  'x\n<script>HIT</script>\n===', '<div>\n\n**x**\n\n<script>HIT</script>\n</div>',
];
const nested = ['>', '- ', '*', '**', '_', '[', '![', '<', '`', '~~', '(', '|', '#', '&', '\\'].map((part) => part.repeat(3000));

const contexts = [(text) => text, (text) => `- a\n  - ${text.replaceAll('\n', '\n    ')}`];
const put = (text) => text.replaceAll('HIT', '(window.hit=1)').replaceAll('URL', 'https://example.invalid/x');

export const injections = [
  ...[...markup, ...links, ...blocks].flatMap((text) => contexts.map((context) => put(context(text)))),
  ...nested, ...links.filter((text) => !text.includes('\n')).slice(0, 15).map((text) => put(`| a |\n|---|\n| ${text} |`)),
];
