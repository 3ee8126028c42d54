// One conversation, turn by turn, beside what the teacher saw or beside the same task elsewhere.
let opened = { key: "", beside: "", parts: {} };

function besideOptions(row, record) {
  const options = [["none", "nothing"]];
  if (record.turns.some((turn) => turn.teacher)) options.push(["teacher", "what the teacher saw"]);
  index.sources.forEach((source, k) => { if (k !== row.source && byItem.has(itemOf(row, k))) options.push([source.key, sourceLabel(k)]); });
  return options;
}

function besideChoice(state, row, options) {
  if (options.some(([key]) => key === state.beside)) return state.beside;
  if (options.some(([key]) => key === "teacher")) return "teacher";
  const other = counterpart(row.source);
  return other >= 0 && options.some(([key]) => key === index.sources[other].key) ? index.sources[other].key : "none";
}

async function conversationPage(state, row) {
  const record = await conversationOf(row);
  const options = besideOptions(row, record), beside = besideChoice(state, row, options);
  const other = byItem.get(itemOf(row, sourceNumber(beside) < 0 ? row.source : sourceNumber(beside)));
  const against = beside === "none" || beside === "teacher" || !other ? null : { row: other, record: await conversationOf(other) };
  const trained = record.turns.some((turn) => turn.parts.some((part) => part.tokens?.trained));
  const quantity = quantityOf(state, trained), logged = record.turns.some((turn) => turn.parts.length);
  const controls = h("div", { class: "controls" },
    logged ? choice("colour by", Object.keys(QUANTITIES).find((k) => QUANTITIES[k] === quantity),
      Object.entries(QUANTITIES).filter(([, q]) => trained || !q.trained).map(([key, q]) => [key, q.name]), (by) => go({ by }, true), { id: "by" }) : null,
    choice("beside it", beside, options, (value) => go({ beside: value }, true), { id: "beside" }));
  return h("article", { class: "conversation", "aria-label": "Conversation " + short(row.id, 80) },
    h("div", { class: "walk" }, h("a", { class: "back", href: linkTo({ c: "", t: "" }, state) }, "‹ all conversations"),
      h("button", { type: "button", class: "quiet", onclick: () => walk(-1), title: "k" }, "previous"), h("button", { type: "button", class: "quiet", onclick: () => walk(1), title: "j" }, "next")),
    h("h2", {}, short(row.id, 120)),
    h("p", { class: "muted" }, sourceLabel(row.source) + (index.sources[row.source].kind === "training" ? ", step " + row.number : "") + ", " + row.view.toUpperCase() + (row.task ? ", task " + short(row.task, 60) : "")),
    record.expected ? h("p", {}, "expected " + short(record.expected, 200)) : null,
    against ? inOrder(row, against, answerLine(row, record, sourceLabel(row.source)), answerLine(against.row, against.record, sourceLabel(against.row.source))) : answerLine(row, record, ""),
    record.system || record.full ? h("details", {}, h("summary", {}, "The task in full"),
      record.system ? [h("p", { class: "label" }, "system prompt"), textBlock(record.system)] : null, record.full ? [h("p", { class: "label" }, "all in one message"), textBlock(record.full)] : null) : null,
    controls, logged ? h("div", { id: "legend" }, legend(quantity, trained)) : h("p", { class: "muted" }, "No token log: make it with --set " + (index.sources[row.source].kind === "training" ? "train" : "eval") + ".save_tokens=true."),
    trained ? turnBars(record) : null,
    record.turns.map((turn, k) => turnBlock(turn, k, row, record, beside, against)));
}

// Two things side by side, that of the earlier model left.
function inOrder(row, against, own, other) {
  return h("div", { class: "pair" }, standsLeft(row.source, against.row.source) ? [own, other] : [other, own]);
}

function answerLine(row, record, name) {
  const none = record.extracted === null || record.extracted === undefined;
  return h("p", { class: "answer" }, name ? name + ": " : "", verdictMark(row.verdict), none ? "" : ", answered " + short(record.extracted, 200),
    record.status && record.status !== "ok" ? ", " + record.status.replace("_", " ") : "");
}

// Weight and distance of every turn: which replies the training trusted.
function turnBars(record) {
  const known = record.turns.map((turn, k) => [turn.parts[0], k]).filter(([part]) => part && part.weight !== undefined);
  const most = Math.max(...known.map(([part]) => part.delta), 1e-6);
  return h("details", { class: "turn-bars", open: true }, h("summary", {}, "Turn weights and distances"),
    h("div", { class: "pair tight" },
      h("div", {}, h("p", { class: "label" }, "weight in the loss"), known.map(([part, k]) => bar("turn " + (k + 1), part.weight, part.weight.toFixed(2)))),
      h("div", {}, h("p", { class: "label" }, "delta, mean |log s − log t|"), known.map(([part, k]) => bar("turn " + (k + 1), part.delta / most, part.delta.toFixed(3))))));
}

function turnVerdict(turn, k, row, record) {
  if (k === record.turns.length - 1) return verdictMark(row.verdict);
  if (turn.right === undefined || turn.right === null) return null;
  return h("span", { class: "verdict " + (turn.right ? "right" : "wrong") }, turn.right ? "✓ says what was told so far" : "✗ does not say what was told so far");
}

function replyBlock(turn, k, row, record, name, place) {
  const part = turn.parts[0], words = [name];
  if (part?.term) words.push("term " + part.term + (turn.parts.length > 1 ? " (also " + turn.parts.slice(1).map((other) => other.term).join(", ") + ")" : ""));
  if (turn.stop === "length") words.push("cut at the token limit");
  return h("div", { class: "reply" }, h("p", { class: "label" }, words.join(", "), " ", turnVerdict(turn, k, row, record)),
    part ? tokenBlock(part.tokens, place + k, name + ", turn " + (k + 1)) : textBlock(turn.reply));
}

function turnBlock(turn, k, row, record, beside, against) {
  const named = (source) => (against ? ", " + sourceLabel(source) : "");
  const said = (text, more) => h("div", { class: "user" }, h("p", { class: "label" }, "user, turn " + (k + 1) + more), textBlock(text));
  const own = replyBlock(turn, k, row, record, "reply" + named(row.source), "");
  let user = said(turn.user, ""), replies = h("div", { class: beside === "teacher" ? "pair" : "" }, own, beside === "teacher" ? teacherBlock(turn) : null);
  if (against) {
    const other = against.record.turns[k], name = named(against.row.source);
    replies = inOrder(row, against, own, other ? replyBlock(other, k, against.row, against.record, "reply" + name, "o") : h("div", { class: "reply muted" }, "(no such turn)"));
    if (other && other.user !== turn.user) user = inOrder(row, against, said(turn.user, named(row.source)), said(other.user, name));
  }
  return h("section", { class: "turn", "aria-label": "Turn " + (k + 1) }, user, replies);
}

function teacherBlock(turn) {
  if (!turn.teacher) return h("div", { class: "teacher muted" }, "No teacher for this reply.");
  return h("div", { class: "teacher" }, h("p", { class: "label" }, "what the teacher saw before this reply"),
    turn.teacher.map((context) => h("div", { class: "context" },
      turn.teacher.length > 1 || context.weight !== 1 ? h("p", { class: "label" }, "weight " + number(context.weight)) : null,
      context.messages ? context.messages.map((message) => h("div", { class: "message" }, h("p", { class: "label" }, message.role), textBlock(message.content))) : textBlock(context.text || ""))));
}

// Where a link points to a token, look at it.
function pointTo(state) {
  const found = /^(o?\d+)\.(\d+)$/.exec(state.t);
  const block = found && [...document.querySelectorAll(".tokens")].find((b) => b.dataset.turn === found[1]);
  if (block) { point(block, Number(found[2]), false); block.querySelector(".current")?.scrollIntoView({ block: "center" }); }
  else { const first = document.querySelector(".tokens"); if (first) point(first, 0, false); }
}
