// Everything on the page is made here: elements and text nodes. No text is ever read as markup.
const SVG = "http://www.w3.org/2000/svg";
const LONG = 20000; // characters of a text shown at once

function h(name, attributes, ...children) {
  const element = document.createElement(name);
  return filled(element, attributes, children);
}

function svg(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// Text with places to break in its long words: without them a browser takes time in the square of their length.
function broken(text) {
  const parts = [];
  for (let from = 0; from < text.length; ) {
    const piece = text.slice(from, from + 4000);
    let start = 0, run = 0;
    for (let i = 0; i < piece.length; i++) {
      run = " \n\t".includes(piece[i]) ? 0 : run + 1;
      if (run === 80) { parts.push(piece.slice(start, i), h("wbr")); start = i; run = 0; }
    }
    parts.push(piece.slice(start));
    from += 4000;
  }
  return parts;
}

// A text of any length: its beginning, and a button for more of it.
function textBlock(text, attributes) {
  const block = h("div", { dir: "auto", ...attributes, class: "text " + (attributes?.class || "") });
  let shown = 0;
  const more = () => {
    const next = text.slice(shown, shown + LONG);
    shown += next.length;
    block.querySelector(":scope > button")?.remove();
    block.append(...broken(next));
    if (shown < text.length) {
      const left = (text.length - shown).toLocaleString("en");
      block.append(h("button", { type: "button", class: "more", onclick: more }, "Show more (" + left + " characters)"));
    }
  };
  if (text) more(); else block.append(h("span", { class: "muted" }, "(empty)"));
  return block;
}

function short(text, limit) {
  const line = String(text).slice(0, limit * 2).replace(/\s+/g, " ").trim();
  return line.length > limit ? line.slice(0, limit - 1) + "…" : line;
}

function percent(value, digits = 1) {
  return value === null || value === undefined ? "n/a" : (100 * value).toFixed(digits) + "%";
}

function points(value) {
  return value === null || value === undefined ? "n/a" : (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(100 * value).toFixed(1);
}

function pValue(p) {
  return p === null || p === undefined ? "n/a" : p < 0.001 ? "< 0.001" : p.toFixed(p < 0.1 ? 3 : 2);
}

function range(low, high) {
  return low === null || low === undefined ? "–" : "[" + percent(low).slice(0, -1) + ", " + percent(high).slice(0, -1) + "]";
}

function number(value) {
  if (value === null || value === undefined) return "n/a";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  return size && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(+value.toPrecision(4));
}

function verdictMark(value) {
  const known = value === 1 || value === true ? ["right", "✓ correct"] : value === 0 || value === false ? ["wrong", "✗ wrong"] : ["open", "– not judged"];
  return h("span", { class: "verdict " + known[0] }, known[1]);
}

function table(heads, rows, caption) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "table" },
    h("table", {}, caption ? h("caption", { class: "hidden" }, caption) : null,
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, k) => h(k ? "td" : "th", k ? {} : { scope: "row" }, cell)))))));
}

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

function choice(label, value, options, onchange, attributes) {
  const select = h("select", { onchange: (event) => onchange(event.target.value), ...attributes },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

// What is drawn anew keeps the focus: it goes to what has the same id afterwards.
function keepingFocus(draw) {
  const id = document.activeElement?.id;
  draw();
  if (id && document.activeElement?.id !== id) document.getElementById(id)?.focus({ preventScroll: true });
}

function announce(words) {
  document.getElementById("said").textContent = words;
}
