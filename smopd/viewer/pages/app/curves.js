// Training curves: a chart for every group of metrics, or, of several runs, for every metric.
const TITLES = {
  loss: "Loss", outcome: "Correct final answers", turn_accuracy: "Middle replies correct for what was told so far",
  teacher: "The same of the teacher's own", clipped: "Tokens over the cap", kept: "Tokens that carry loss", entropy: "Student entropy, nats",
  divergence: "Divergence, nats", delta: "Distance |log s − log t|, nats", weight: "Turn weight", reply_tokens: "Tokens of a reply",
  grad_norm: "Gradient norm", lr: "Learning rate", seconds: "Seconds a step, by stage", stop: "How replies ended", verdict: "Verdicts",
  tokens: "Tokens a step", rollout: "Rollouts", eligible_turns: "Middle turns",
};

// One run: a chart for every group of metrics, a line a part. Several runs: a chart for every metric, a line a run.
function curves(runs) {
  const several = runs.length > 1, groups = new Map();
  for (const run of runs) {
    for (const name of Object.keys(run.metrics)) {
      const group = several ? name : name.split("/")[0];
      if (!groups.has(group)) groups.set(group, new Set());
      groups.get(group).add(name);
    }
  }
  const order = Object.keys(TITLES), place = (name) => { const k = order.indexOf(name.split("/")[0]); return k < 0 ? 99 : k; };
  const charts = [...groups].filter(([, names]) => hasValues(runs, names)).sort((a, b) => place(a[0]) - place(b[0])).map(([group, names]) => {
    const [head, part] = group.split("/"), title = (TITLES[head] || head) + (part ? ": " + part : ""), series = [], keys = [];
    [...names].forEach((name, number) => runs.forEach((run, k) => {
      const y = run.metrics[name];
      if (!y || !y.some((v) => v !== null)) return;
      const look = several ? k : number;
      series.push({ name: several ? run.name : name, x: run.step, y, look });
      if (!several) keys.push(h("li", {}, swatch(look), (name.includes("/") ? name.slice(group.length + 1) : name) + " " + ends(y)));
    }));
    return h("figure", {}, h("figcaption", {}, title), lineChart(title, series), h("ul", { class: "key" }, keys));
  });
  return h("div", { class: "charts" }, evaluationCharts(runs), charts);
}

function hasValues(runs, names) {
  return runs.some((run) => [...names].some((name) => run.metrics[name]?.some((v) => v !== null)));
}

function evaluationCharts(runs) {
  const names = [...new Set(runs.flatMap((run) => run.evaluations.map((e) => e.metric)))];
  return names.map((name) => {
    const series = runs.map((run, k) => {
      const own = run.evaluations.filter((e) => e.metric === name);
      return { name: run.name, x: own.map((e) => e.step), y: own.map((e) => e.value), look: k };
    }).filter((s) => s.x.length);
    const title = "Accuracy while training, " + name.toUpperCase();
    return h("figure", {}, h("figcaption", {}, title), lineChart(title, series));
  });
}
