// The list of conversations: filters, search, and as many lines as anybody has asked to see.
const PAGE = 100;
let listed = []; // the rows that pass the filters
let said = null; // what was said in every conversation, in lower case, once somebody has searched
let room = PAGE;

function changeOf(row, other) {
  const there = other < 0 ? null : byItem.get(itemOf(row, other));
  if (!there || row.verdict < 0 || there.verdict < 0) return "";
  const later = standsLeft(row.source, other) ? there : row;
  return row.verdict === there.verdict ? "same" : later.verdict ? "gained" : "lost";
}

function besideSource(state, row) {
  const chosen = sourceNumber(state.beside);
  return chosen >= 0 && chosen !== row.source ? chosen : counterpart(row.source);
}

async function filtered(state) {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean), source = sourceNumber(state.source);
  if (words.length && !said) said = (await jsonOf("search")).map((text) => text.toLowerCase());
  return rows.filter((row) => {
    if (source >= 0 && row.source !== source) return false;
    if (state.view && row.view !== state.view) return false;
    if (state.task && row.task !== state.task) return false;
    if (state.shards && String(row.shards) !== state.shards) return false;
    if (state.verdict && String(row.verdict) !== state.verdict) return false;
    if (state.change && changeOf(row, besideSource(state, row)) !== state.change) return false;
    return words.every((word) => said[row.i].includes(word));
  });
}

function filterBar(state) {
  const distinct = (name) => [...new Set(rows.map((row) => row[name]))].filter((v) => v !== "").sort((a, b) => (a > b ? 1 : -1));
  const set = (key) => (value) => { room = PAGE; go({ [key]: value }, true); };
  const search = h("input", { type: "search", id: "search", value: state.q, placeholder: "words said, or an id", "aria-label": "Search what was said", maxlength: 200 });
  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => set("q")(search.value), 150); });
  const any = (name, values, label) => (values.length > 1 ? choice(label, state[name], [["", "all"], ...values], set(name), { id: "filter-" + name }) : null);
  return h("form", { class: "filters", role: "search", "aria-label": "Which conversations", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "choice wide" }, h("span", {}, "search"), search),
    any("source", index.sources.map((s, k) => [s.key, sourceLabel(k)]), "from"),
    any("view", distinct("view").map((v) => [v, v.toUpperCase()]), "told as"),
    any("task", distinct("task").map((v) => [v, short(v, 40)]), "task"),
    any("verdict", distinct("verdict").map((v) => [v, v === 1 ? "correct" : v === 0 ? "wrong" : "not judged"]), "verdict"),
    index.sources.length > 1 ? choice("change", state.change, [["", "all"], ["gained", "gained: from wrong to correct"], ["lost", "lost: from correct to wrong"], ["same", "the same"]], set("change"), { id: "filter-change" }) : null,
    any("shards", distinct("shards").map((v) => [v, v + (v === 1 ? " turn" : " turns")]), "turns"),
    FILTERS.some((name) => state[name]) ? h("button", { type: "button", class: "quiet", onclick: () => go(Object.fromEntries(FILTERS.map((name) => [name, ""])), true) }, "clear") : null);
}

function rowLine(row, state) {
  const source = index.sources[row.source], change = changeOf(row, besideSource(state, row));
  const where = (index.sources.length > 1 ? sourceLabel(row.source) + ", " : "") + (source.kind === "training" ? "step " + row.number + ", " : row.number ? "run " + (row.number + 1) + ", " : "");
  const marks = [verdictMark(row.verdict), change === "gained" ? h("span", { class: "tag gained" }, "gained") : change === "lost" ? h("span", { class: "tag lost" }, "lost") : null];
  return h("li", {}, h("a", { href: linkTo({ c: keyOf(row), t: "", page: "conversations" }, state), id: "row-" + row.i, "aria-current": state.c === keyOf(row) ? "true" : null },
    h("span", { class: "line-top" }, h("b", {}, short(row.id, 44)), ...marks),
    h("span", { class: "line-more" }, where + row.view.toUpperCase() + (row.task ? ", " + short(row.task, 24) : "") + ", " + row.tokens + " tokens" + (row.known ? ", turns correct " + row.right + "/" + row.known : ""))));
}

function fillList(list, state) {
  const lines = listed.slice(0, room).map((row) => rowLine(row, state));
  if (listed.length > room) {
    const more = h("li", {}, h("button", { type: "button", class: "more", onclick: () => { room += PAGE; fillList(list, readState()); } }, "Show more of " + listed.length));
    lines.push(more);
  }
  list.replaceChildren(...lines);
  if (!listed.length) list.append(h("li", { class: "muted" }, "No conversation is like that."));
}

function keepInSight(state) {
  const place = listed.findIndex((row) => keyOf(row) === state.c);
  if (place >= room) room = place + PAGE;
  return place;
}

// The next or the last conversation of the list.
function walk(by) {
  const state = readState(), place = listed.findIndex((row) => keyOf(row) === state.c);
  const next = listed[Math.max(0, Math.min(listed.length - 1, place + by))];
  if (next) go({ page: "conversations", c: keyOf(next), t: "" });
}
