// What is shown is in the address behind the #, so that a link restores it: page, conversation, colours, filters.
let index = null;
let rows = [];
const DEFAULTS = { page: "", c: "", by: "", beside: "", source: "", view: "", task: "", verdict: "", change: "", shards: "", q: "", t: "", run: "", metric: "" };
const FILTERS = ["source", "view", "task", "verdict", "change", "shards", "q"];

function readState() {
  const found = { ...DEFAULTS };
  for (const part of location.hash.slice(1).split("&")) {
    const cut = part.indexOf("=");
    if (cut < 1) continue;
    let value = "";
    try { value = decodeURIComponent(part.slice(cut + 1)); } catch { continue; }
    const key = part.slice(0, cut);
    if (Object.hasOwn(DEFAULTS, key)) found[key] = value;
  }
  return found;
}

function linkTo(changes, from = readState()) {
  const next = { ...from, ...changes };
  const parts = Object.entries(next).filter(([key, value]) => Object.hasOwn(DEFAULTS, key) && value !== "" && value !== null);
  return "#" + parts.map(([key, value]) => key + "=" + encodeURIComponent(value)).join("&");
}

// Follow a link. What is only refined (a filter, a token) takes the place of the last entry of the history.
function go(changes, refine = false) {
  const link = linkTo(changes);
  if (link === (location.hash || "#")) return;
  if (refine) { history.replaceState(null, "", link); shown(); } else { location.hash = link; }
}

function freshLink(changes) {
  return linkTo(changes, DEFAULTS);
}

function makeRows(columns) {
  const count = (columns.source || []).length, words = columns.words;
  const made = new Array(count);
  for (let i = 0; i < count; i++) {
    const row = { i };
    for (const name of ["source", "id", "shards", "number", "sample", "verdict", "tokens", "logged", "right", "known", "pack", "place"]) row[name] = columns[name][i];
    for (const name of ["view", "task", "status"]) row[name] = words[name][columns[name][i]];
    made[i] = row;
  }
  return made;
}

const byKey = new Map(), byItem = new Map();

function keyOf(row) {
  return [index.sources[row.source].key, row.view, row.number, row.sample, row.id].join("~");
}

function itemOf(row, source = row.source) {
  return [source, row.view, index.sources[source].kind === "training" ? row.number : 0, row.id].join("~");
}

function indexRows() {
  for (const row of rows) {
    byKey.set(keyOf(row), row);
    const item = itemOf(row);
    if (!byItem.has(item)) byItem.set(item, row);
  }
}

function sourceLabel(number) {
  const source = index.sources[number], words = { before: "before training", after: "after training", training: "while training" };
  const run = index.runs.length > 1 ? index.runs[source.run].name + ", " : "";
  const others = index.sources.filter((s) => s.run === source.run && s.kind === source.kind).length;
  return run + words[source.kind] + (others > 1 ? " (" + source.name + ")" : "");
}

function sourceNumber(key) {
  return index.sources.findIndex((source) => source.key === key);
}

// Before training stands left, after training right; of two alike, the one that was named first stands left.
function standsLeft(number, other) {
  const order = (k) => ["before", "after", "training"].indexOf(index.sources[k].kind);
  return (order(number) - order(other) || number - other) < 0;
}

// With which source a conversation is compared when nobody chose: before with after, else the same task of another run.
function counterpart(number) {
  const own = index.sources[number];
  const same = index.sources.map((s, k) => [s, k]).filter(([s, k]) => k !== number && s.kind !== "training" && own.kind !== "training" && s.data === own.data);
  const near = same.filter(([s]) => s.run === own.run && s.kind !== own.kind);
  const pick = near[0] || same.find(([s]) => s.kind !== own.kind) || same[0];
  return pick ? pick[1] : -1;
}
