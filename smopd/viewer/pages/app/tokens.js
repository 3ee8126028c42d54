// Replies as coloured tokens. A reply is one stop of the Tab key; inside it the arrow keys go from token to token.
const QUANTITIES = {
  entropy: { name: "student entropy", trained: false, of: (t, i) => t.entropy(i), levels: [0.02, 0.1, 0.25, 0.5, 0.8, 1.2, 1.8, 2.5], unit: "nats" },
  surprise: { name: "surprise, −log p of the token", trained: false, of: (t, i) => -t.logp(i), levels: [0.02, 0.1, 0.25, 0.5, 1, 2, 3, 5], unit: "nats" },
  teacher: { name: "teacher entropy", trained: true, of: (t, i) => t.teacherEntropy(i), levels: [0.02, 0.1, 0.25, 0.5, 0.8, 1.2, 1.8, 2.5], unit: "nats" },
  divergence: { name: "divergence of student and teacher", trained: true, of: (t, i) => t.divergence(i), levels: [0.001, 0.005, 0.01, 0.03, 0.06, 0.12, 0.25, 0.5], unit: "nats" },
  difference: { name: "log-probability, student − teacher", trained: true, of: (t, i) => t.logp(i) - t.teacherLogp(i), levels: [0.02, 0.1, 0.25, 0.5, 0.8, 1.2, 1.8, 2.5], unit: "nats", signed: true },
  kept: { name: "kept or dropped", trained: true, of: (t, i) => (t.kept(i) ? 1 : 0), levels: [], unit: "" },
  clipped: { name: "clipped", trained: true, of: (t, i) => (t.clipped(i) ? 1 : 0), levels: [], unit: "" },
  weight: { name: "weight of the turn", trained: true, of: (t) => t.weight(), levels: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85], unit: "" },
};
const AT_ONCE = 1500; // tokens of a reply shown at once

function quantityOf(state, trained) {
  const chosen = QUANTITIES[state.by];
  return chosen && (trained || !chosen.trained) ? chosen : trained ? QUANTITIES.divergence : QUANTITIES.entropy;
}

function tokenClass(tokens, i, quantity) {
  const value = quantity.of(tokens, i);
  let look = "k";
  if (quantity === QUANTITIES.kept) look += value ? " q5" : " dropped";
  else if (quantity === QUANTITIES.clipped) look += value ? " q8 clipped" : "";
  else {
    const level = quantity.levels.filter((bound) => Math.abs(value) >= bound).length;
    look += quantity.signed && value < 0 ? " n" + level : " q" + level;
    if (tokens.trained && !tokens.kept(i)) look += " dropped";
    if (tokens.clipped(i)) look += " clipped";
  }
  return look;
}

function shownText(text) {
  if (text === "") return "␀";
  return text.length > 400 ? text.slice(0, 400) + "…" : text;
}

// The tokens of one part as a paragraph; `place` says which reply it is, for links and the panel.
function tokenBlock(tokens, place, label) {
  const block = h("div", { class: "tokens text", dir: "auto", tabindex: "0", role: "group", "data-turn": place,
    "aria-label": label + ", " + tokens.count + " tokens; arrow keys go from one to the next" });
  block.tokens = tokens;
  let count = 0;
  block.more = () => {
    block.querySelector(":scope > button")?.remove();
    const quantity = quantityOf(readState(), tokens.trained), last = Math.min(tokens.count, count + AT_ONCE);
    const fragment = document.createDocumentFragment();
    for (; count < last; count++) {
      const text = shownText(tokens.text(count)), span = document.createElement("span");
      span.className = tokenClass(tokens, count, quantity);
      span.dataset.i = count;
      span.append(text.length > 80 ? broken(text)[0] : text.replace(/\n/g, "↵\n"));
      if (text.length > 80) span.replaceChildren(...broken(text));
      fragment.append(span);
    }
    block.append(fragment);
    if (count < tokens.count) block.append(h("button", { type: "button", class: "more", onclick: block.more }, "Show more (" + (tokens.count - count) + " tokens)"));
  };
  block.more();
  block.addEventListener("mouseover", (event) => { if (event.target.dataset.i !== undefined) point(block, Number(event.target.dataset.i), false); });
  block.addEventListener("click", (event) => { if (event.target.dataset.i !== undefined) point(block, Number(event.target.dataset.i), true); });
  block.addEventListener("focus", () => { if (!block.contains(document.querySelector(".k.current"))) point(block, 0, false); });
  block.addEventListener("keydown", (event) => {
    const at = block.at ?? 0, line = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + 10, ArrowUp: at - 10, Home: 0, End: tokens.count - 1 }[event.key];
    if (line === undefined || event.target !== block) return;
    event.preventDefault();
    point(block, Math.max(0, Math.min(tokens.count - 1, line)), true, true);
  });
  return block;
}

// Look at one token: mark it, and tell about it in the panel; `keep` puts it into the link.
function point(block, i, keep, spoken = false) {
  i = Math.min(i, block.tokens.count - 1); // a link may have been made for another reply
  while (block.querySelectorAll(".k").length <= i && block.querySelector(":scope > button")) block.more();
  document.querySelector(".k.current")?.classList.remove("current");
  const span = block.querySelectorAll(":scope > .k")[i];
  if (!span) return;
  span.classList.add("current");
  block.at = i;
  document.getElementById("panel")?.replaceChildren(...panelOf(block.tokens, i));
  if (spoken) {
    span.scrollIntoView({ block: "nearest" });
    const t = block.tokens;
    announce("token " + (i + 1) + " " + t.text(i) + ", probability " + percent(Math.exp(t.logp(i)), 0) + (t.trained ? ", teacher " + percent(Math.exp(t.teacherLogp(i)), 0) : "") + ", entropy " + t.entropy(i).toFixed(2));
  }
  if (keep) history.replaceState(null, "", linkTo({ t: block.dataset.turn + "." + i }));
}

function recolour() {
  const state = readState();
  for (const block of document.querySelectorAll(".tokens")) {
    const quantity = quantityOf(state, block.tokens.trained);
    for (const span of block.querySelectorAll(":scope > .k")) {
      const current = span.classList.contains("current");
      span.className = tokenClass(block.tokens, Number(span.dataset.i), quantity) + (current ? " current" : "");
    }
  }
}

function panelOf(t, i) {
  const line = (name, value) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value));
  const facts = [line("student entropy", t.entropy(i).toFixed(3))];
  if (t.trained) {
    facts.push(line("teacher entropy", t.teacherEntropy(i).toFixed(3)), line("divergence", t.divergence(i).toFixed(4)), line("log s − log t", (t.logp(i) - t.teacherLogp(i)).toFixed(3)),
      line("carries loss", t.kept(i) ? "kept" : "dropped"), line("over the cap", t.clipped(i) ? "clipped" : "no"), line("weight of the turn", t.weight().toFixed(3)));
  }
  return [
    h("p", { class: "panel-token" }, h("code", {}, short(t.text(i).replace(/\n/g, "↵").replace(/ /g, "␣"), 60) || "␀"), h("span", { class: "muted" }, " token " + (i + 1) + " of " + t.count)),
    h("dl", { class: "facts" }, facts),
    h("div", { class: "both" }, alternatives("student", t, i), t.trained ? alternatives("teacher", t, i) : null),
  ];
}

function alternatives(model, t, i) {
  return h("div", {}, h("p", { class: "label" }, model + " would say"), t.likely(i, model).slice(0, 8).map((one) =>
    bar(short(one.text.replace(/\n/g, "↵").replace(/ /g, "␣"), 18) || "␀", Math.exp(one.logp), percent(Math.exp(one.logp), 1), one.sampled ? "sampled" : "")));
}

function legend(quantity, trained) {
  const mark = (look, words) => h("li", {}, h("span", { class: "k " + look, "aria-hidden": "true" }, "ab"), words);
  if (quantity === QUANTITIES.kept) return h("ul", { class: "legend" }, mark("q5", "kept: carries loss"), mark("dropped", "dropped"));
  if (quantity === QUANTITIES.clipped) return h("ul", { class: "legend" }, mark("", "below the cap"), mark("q8 clipped", "clipped"));
  const some = [0, 2, 4, 6, 8].map((level) => mark("q" + level, level ? "≥ " + quantity.levels[level - 1] : "less"));
  if (quantity.signed) some.unshift(mark("n6", "teacher likelier"), mark("q6", "student likelier"));
  return h("ul", { class: "legend" }, some, trained ? [mark("dropped", "dropped"), mark("clipped", "clipped")] : null, quantity.unit ? h("li", { class: "muted" }, quantity.unit) : null);
}
