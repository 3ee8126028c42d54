// The study page: the verdict, then the arms with their intervals and seeds, then the items that flip.
function studyPage() {
  const page = h("div", { class: "page" });
  for (const study of index.studies) {
    page.append(h("h1", {}, study.title), h("p", { class: "muted" }, study.seeds + " seeds, " + study.items + " items, every arm against " + study.reference));
    page.append(h("div", { class: "verdicts" }, h("h2", {}, "Verdict"), study.verdicts.map((line) => h("p", {}, line))));
    if (study.about) page.append(h("p", {}, study.about));
    for (const view of study.views) page.append(armSection(study, view));
    page.append(h("details", {}, h("summary", {}, "Every comparison in words"), h("ul", {}, study.sentences.map((line) => h("li", {}, line)))));
  }
  return page;
}

function armSection(study, view) {
  const rowsOf = view.arms.map((a) => [a.arm, percent(a.mean), range(a.low, a.high),
    h("span", { class: "seeds" }, a.seeds.map((s) => [seedLink(s, view.view), " "])), a.difference === undefined ? (a.reference ? "reference" : "–") : points(a.difference),
    a.low_difference === undefined || a.low_difference === null ? "–" : "[" + points(a.low_difference) + ", " + points(a.high_difference) + "]", a.verdict || "–"]);
  const flips = view.arms.filter((a) => a.flips.length);
  return section(view.view.toUpperCase(),
    armChart(view.view.toUpperCase() + ", accuracy of every arm", view.arms, (seed) => { const link = seedHref(seed, view.view); if (link) location.hash = link; }),
    h("p", { class: "muted" }, "Bar: mean over seeds. Line: its 95% interval over items for these very runs (Wilson's where every item went the same way in all of them, else a bootstrap over items); it leaves out the chance of other seeds. Dots: single seeds; each leads to its conversations. The interval of a difference counts seeds and items."),
    table(["arm", "accuracy", "95% over items", "seeds", "difference", "95% over seeds and items", "verdict"], rowsOf, view.view.toUpperCase() + ": arms"),
    flips.map((a) => h("details", { class: "flips" }, h("summary", {}, "Items that flip: " + a.arm + " against " + study.reference + " (" + a.flips.length + ")"),
      table(["item", study.reference, a.arm, "conversations"], a.flips.map((f) => [short(f.id, 60), percent(f.from, 0), percent(f.to, 0), flipLinks(a, f, view.view)]), "Items that flip"))));
}

function seedHref(seed, view) {
  if (seed.run === null || seed.run === undefined) return null;
  const source = index.sources.findIndex((s) => s.run === seed.run && s.kind === (seed.seed === null ? "before" : "after"));
  return source < 0 ? null : freshLink({ page: "conversations", source: index.sources[source].key, view });
}

function seedLink(seed, view) {
  const link = seedHref(seed, view), words = percent(seed.value);
  return link ? h("a", { href: link, title: "seed " + seed.seed }, words) : words;
}

function flipLinks(arm, flip, view) {
  return arm.seeds.map((seed) => {
    const row = rows.find((r) => index.sources[r.source].run === seed.run && index.sources[r.source].kind === "after" && r.view === view && r.id === flip.id);
    return row ? [h("a", { href: freshLink({ page: "conversations", c: keyOf(row) }) }, "seed " + seed.seed), " ", verdictMark(row.verdict), " "] : null;
  });
}
