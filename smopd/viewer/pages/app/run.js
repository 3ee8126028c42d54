// The run page: curves of every metric with all runs in one picture, what their settings differ in, how they ended.
function runPage() {
  const trained = index.runs.filter((run) => run.step.length);
  const page = h("div", { class: "page" }, h("h1", {}, index.runs.length > 1 ? index.runs.length + " runs" : "The run " + index.runs[0].name));
  page.append(runTable());
  if (accuracyRows().length) page.append(section("Accuracy before and after training", accuracyTable()));
  if (trained.length) {
    page.append(section("Curves", h("p", { class: "muted" }, "Faint: every step. Strong: a moving mean. ", trained.length > 1 ? "One line a run:" : "One line a part:"),
      trained.length > 1 ? h("ul", { class: "key" }, trained.map((run, k) => h("li", {}, swatch(k), run.name))) : null, curves(trained)));
    page.append(section("Where the time went", stages(trained)));
  }
  if (index.runs.length > 1) page.append(section("What the settings differ in", differences()));
  page.append(section("How replies ended", stops()));
  page.append(section("Warnings", warnings()));
  page.append(h("details", {}, h("summary", {}, "Every setting"), settings()));
  return page;
}

function runTable() {
  return table(["run", "model", "method", "seed", "steps", "how it ended"], index.runs.map((run) => [run.name, run.model, run.method || "–", run.seed,
    run.done + " of " + run.steps, run.ended]), "Runs");
}

// A line for every trained model, beside the untrained one on the same tasks; for an untrained one alone, a line too.
function accuracyRows() {
  const of = (kind) => index.sources.map((s, k) => [s, k]).filter(([s]) => s.kind === kind);
  const used = new Set(), lines = of("after").map(([after, k]) => {
    const other = counterpart(k), before = other >= 0 && index.sources[other].kind === "before" ? index.sources[other] : null;
    used.add(before);
    return { run: index.runs[after.run], before, after, name: after.name };
  });
  return [...lines, ...of("before").filter(([s]) => !used.has(s)).map(([before]) => ({ run: index.runs[before.run], before, after: null, name: before.name }))];
}

function accuracyTable() {
  const lines = accuracyRows(), views = [...new Set(index.sources.flatMap((s) => Object.keys(s.views)))];
  const cell = (source, view) => { const v = source?.views[view]; return v ? [percent(v[0]), " ", h("span", { class: "muted" }, range(v[1], v[2]))] : "–"; };
  const twice = (line) => lines.filter((other) => other.run === line.run).length > 1;
  return h("div", {}, table(["run", "method", "steps", ...views.flatMap((view) => [view.toUpperCase() + " before", view.toUpperCase() + " after"])],
    lines.map((line) => [line.run.name + (twice(line) ? ", " + line.name : ""), line.run.method || "–", line.after ? line.after.step ?? line.run.done : 0,
      ...views.flatMap((view) => [cell(line.before, view), cell(line.after, view)])]), "Accuracy before and after training"),
    h("p", { class: "muted" }, "In brackets: 95% intervals over the evaluated tasks. Steps: of the checkpoint that was evaluated."));
}

function stages(runs) {
  const names = ["rollout", "scoring", "update"];
  return table(["run", "seconds a step", ...names, "tokens a second", "hours in all"], runs.map((run) => {
    const mean = (name) => { const v = (run.metrics[name] || []).filter((x) => x !== null); return v.length ? v.reduce((a, b) => a + b, 0) / v.length : null; };
    const step = mean("seconds/step"), sampled = mean("tokens/sampled");
    return [run.name, number(step && +step.toFixed(2)), ...names.map((name) => { const s = mean("seconds/" + name); return s === null || !step ? "n/a" : percent(s / step, 0); }),
      step && sampled ? Math.round(sampled / step) : "n/a", step ? number(+((step * run.step.length) / 3600).toFixed(2)) : "n/a"];
  }), "Stages of a step");
}

function differences() {
  const keys = [...new Set(index.runs.flatMap((run) => Object.keys(run.settings)))];
  const unlike = keys.filter((key) => new Set(index.runs.map((run) => JSON.stringify(run.settings[key] ?? null))).size > 1);
  if (!unlike.length) return h("p", {}, "Nothing: their settings are the same.");
  return table(["setting", ...index.runs.map((run) => run.name)], unlike.map((key) => [key, ...index.runs.map((run) => short(run.settings[key] ?? "–", 60))]), "Settings that differ");
}

function settings() {
  const keys = [...new Set(index.runs.flatMap((run) => Object.keys(run.settings)))];
  return table(["setting", ...index.runs.map((run) => run.name)], keys.map((key) => [key, ...index.runs.map((run) => short(run.settings[key] ?? "–", 200))]), "Settings");
}

function stops() {
  const lines = index.runs.filter((run) => run.metrics["stop/end"]).map((run) => {
    const total = (name) => (run.metrics[name] || []).reduce((a, b) => a + (b || 0), 0);
    return [run.name + ", while training", total("stop/end"), total("stop/length")];
  });
  const statuses = new Map();
  for (const row of rows) {
    if (index.sources[row.source].kind === "training") continue;
    const key = row.source;
    if (!statuses.has(key)) statuses.set(key, {});
    statuses.get(key)[row.status] = (statuses.get(key)[row.status] || 0) + 1;
  }
  const kinds = [...new Set([...statuses.values()].flatMap(Object.keys))];
  return h("div", {},
    lines.length ? table(["replies", "ended by the model", "cut at the token limit"], lines, "Replies while training") : null,
    statuses.size ? table(["conversations", ...kinds.map((k) => (k === "ok" ? "an answer was found" : k.replace("_", " ")))],
      [...statuses].map(([key, counts]) => [sourceLabel(key), ...kinds.map((k) => counts[k] || 0)]), "What the verifiers found") : null);
}

function warnings() {
  const said = index.runs.flatMap((run) => run.warnings.map((w) => [run.name, w.step ?? "–", w.message]));
  return said.length ? table(["run", "step", "what it said"], said.map(([run, step, words]) => [run, step, h("span", { class: "wrap" }, short(words, 600))]), "Warnings") : h("p", {}, "None.");
}
