// What improved and why: a page for somebody who has a minute.
function summaryPage() {
  const page = h("div", { class: "page narrow" }, h("h1", {}, "What improved, and why"));
  if (!index.summaries.length) {
    page.append(h("p", { class: "lede" }, "There is no evaluation of the same tasks before and after training yet."),
      h("p", {}, "Make both, then these pages again: smopd eval RUN, smopd view RUN."));
    return page;
  }
  if (index.summaries.length > 1) page.append(accuracyTable());
  for (const told of index.summaries) page.append(...oneSummary(told));
  return page;
}

function oneSummary(told) {
  const groups = { worse: "What got worse", better: "What got better", unclear: "No clear change" };
  const kindOf = (row) => (row.clear === "perhaps" ? "worse" : row.clear);
  const whole = told.rows.filter((row) => !Object.keys(row.only).length);
  const parts = [index.summaries.length > 1 ? h("h2", {}, told.run + ": " + told.after.split(":").pop()) : null];
  parts.push(h("p", { class: "lede" }, told.trained), ...told.notices.map((line) => h("p", { class: "notice" }, line)));
  parts.push(h("div", { class: "cards" }, whole.map((row) => h("div", { class: "card " + row.clear },
    h("h3", {}, row.what),
    h("p", { class: "big" }, percent(row.before), h("span", { class: "arrow", "aria-hidden": "true" }, " → "), h("span", { class: "hidden" }, " to "), percent(row.after)),
    h("p", {}, h("b", {}, clearWords(row)), " ", points(row.difference) + " points [" + points(row.low) + ", " + points(row.high) + "]"),
    h("p", { class: "muted" }, changeLinks(told, row))))));
  parts.push(section("How it was trained", h("p", {}, told.how), h("ul", {}, told.facts.map((fact) => h("li", {}, fact)))));
  for (const [kind, title] of Object.entries(groups)) {
    const some = told.rows.filter((row) => kindOf(row) === kind);
    if (kind === "worse" && !some.length) parts.push(section(title, h("p", {}, "Nothing, as far as these conversations can show.")));
    if (!some.length) continue;
    parts.push(section(title, table(["", "before", "after", "points", "interval", "gained", "lost"],
      some.map((row) => [row.clear === "perhaps" ? row.what + " (perhaps)" : row.what, percent(row.before), percent(row.after), points(row.difference),
        "[" + points(row.low) + ", " + points(row.high) + "]", linkCount(told, row, "gained", row.gained), linkCount(told, row, "lost", row.lost)]), title)));
  }
  parts.push(section("Three conversations that show it", told.examples.map((example) => oneExample(told, example))));
  parts.push(h("p", { class: "muted" }, "Each row compares the same tasks before and after training. A change is called clear where its interval leaves out 0. Tasks as a whole were to be compared from the beginning: each has its own 95% interval. "
    + (told.parts ? "The parts, by task and by number of turns, were looked at together: their " + told.parts + " intervals are wider, so that all of them hold at once with 95% (Bonferroni). A loss of a part is called possible where its plain 95% interval is below 0. " : "") + "Gained: wrong before, correct after. Lost: the other way round."));
  return parts.filter(Boolean);
}

function clearWords(row) {
  return { better: "▲ clearly better", worse: "▼ clearly worse", perhaps: "▽ perhaps worse", unclear: "● no clear change" }[row.clear];
}

function changeLinks(told, row) {
  return [row.n + " tasks: ", linkCount(told, row, "gained", row.gained + " gained"), ", ", linkCount(told, row, "lost", row.lost + " lost")];
}

function linkCount(told, row, change, words) {
  const only = row.only.task !== undefined ? { task: row.only.task } : row.only.shards !== undefined ? { shards: row.only.shards } : {};
  return h("a", { href: freshLink({ page: "conversations", source: told.after, beside: told.before, view: row.view, change, ...only }) }, String(words));
}

function oneExample(told, example) {
  const row = rows.find((one) => index.sources[one.source].key === told.after && one.view === example.view && one.id === example.id);
  const side = (name, text, right) => h("div", {}, h("p", { class: "label" }, name, " ", verdictMark(right)), textBlock(text.slice(0, 1200)));
  return h("article", { class: "example" },
    h("h3", {}, example.why, " ", h("span", { class: "muted" }, short(example.task + ", " + example.id, 60))),
    h("div", { class: "user" }, h("p", { class: "label" }, "user, the last turn"), textBlock(example.user.slice(0, 1200))),
    h("div", { class: "pair" }, side("last reply before", example.before, example.was), side("last reply after", example.after, example.now)),
    row ? h("p", {}, h("a", { href: freshLink({ page: "conversations", c: keyOf(row), beside: told.before }) }, row.logged ? "The whole conversation, token by token" : "The whole conversation")) : null);
}
