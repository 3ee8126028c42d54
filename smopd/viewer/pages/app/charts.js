// Small charts in SVG: lines by step, bars, points with intervals. Colours come from the style sheet by number.
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "10 4"];

function ticks(low, high, count = 4) {
  const span = high - low || 1, raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw) || power * 10;
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) found.push(+v.toPrecision(12));
  return found;
}

// A moving mean over about a tenth of the steps: what the eye would do.
function smoothed(values) {
  if (values.length < 12) return values;
  const reach = Math.max(1, Math.round(values.length / 20));
  return values.map((value, i) => {
    if (value === null || value === undefined) return null;
    const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter((v) => v !== null && v !== undefined);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

// Where a smooth line begins and ends.
function ends(values) {
  const strong = smoothed(values).filter((v) => v !== null && v !== undefined);
  return strong.length ? [...new Set([number(strong[0]), number(strong[strong.length - 1])])].join(" → ") : "n/a";
}

// series: [{name, x: [], y: [], look}]; a line each, its steps faint behind it.
function lineChart(title, series, wide = 340, high = 170) {
  const left = 46, right = 8, top = 8, bottom = 22;
  const ys = series.flatMap((s) => s.y).filter((v) => v !== null && v !== undefined), xs = series.flatMap((s) => s.x);
  if (!ys.length) return h("p", { class: "muted" }, "no values");
  let low = Math.min(...ys), highest = Math.max(...ys);
  if (low > 0 && low < highest * 0.6) low = 0;
  if (low === highest) { low -= Math.abs(low) * 0.1 || 0.5; highest += Math.abs(highest) * 0.1 || 0.5; }
  const first = Math.min(...xs), last = Math.max(...xs);
  const px = (x) => left + ((x - first) / (last - first || 1)) * (wide - left - right);
  const py = (y) => top + (1 - (y - low) / (highest - low)) * (high - top - bottom);
  const path = (s, y) => {
    let made = "", pen = "M";
    s.x.forEach((x, i) => {
      if (y[i] === null || y[i] === undefined) { pen = "M"; return; }
      made += pen + px(x).toFixed(1) + " " + py(y[i]).toFixed(1);
      pen = "L";
    });
    return made;
  };
  const lines = series.map((s, k) => {
    const look = s.look ?? k, strong = smoothed(s.y);
    return [
      svg("path", { d: path(s, s.y), class: "line faint c" + (look % 6) }),
      svg("path", { d: path(s, strong), class: "line c" + (look % 6), "stroke-dasharray": DASHES[look % 6] }),
    ];
  });
  const told = series.map((s) => s.name + " " + ends(s.y));
  return svg("svg", { viewBox: `0 0 ${wide} ${high}`, class: "chart", role: "img", "aria-label": title + ": " + told.join("; ") },
    ticks(low, highest).map((v) => [
      svg("line", { x1: left, x2: wide - right, y1: py(v), y2: py(v), class: "grid" }),
      svg("text", { x: left - 6, y: py(v) + 3.5, "text-anchor": "end" }, number(v)),
    ]),
    ticks(first, last).filter(Number.isInteger).map((v) => svg("text", { x: px(v), y: high - 6, "text-anchor": "middle" }, v)),
    lines);
}

function swatch(k) {
  return svg("svg", { viewBox: "0 0 26 8", class: "swatch", "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 4, y2: 4, class: "line c" + (k % 6), "stroke-dasharray": DASHES[k % 6] }));
}

// A bar of a share from 0 to 1, with the number beside it.
function bar(label, share, words, look = "") {
  const part = Math.max(0, Math.min(1, share || 0));
  return h("div", { class: "bar " + look },
    h("span", { class: "bar-label" }, label),
    svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "bar-track", "aria-hidden": "true" },
      svg("rect", { x: 0, y: 0, width: 100, height: 8, class: "bar-ground" }),
      svg("rect", { x: 0, y: 0, width: 100 * part, height: 8, class: "bar-fill" })),
    h("span", { class: "bar-value" }, words));
}

// arms: [{arm, mean, low, high, seeds: [{value}], reference}], a row each on one common scale.
function armChart(title, arms, onpoint) {
  const wide = 640, row = 30, left = 190, right = 14, top = 6, high = top + arms.length * row + 26;
  const all = arms.flatMap((a) => [a.low, a.high, ...a.seeds.map((s) => s.value)]);
  const low = Math.max(0, Math.floor(Math.min(...all) * 20) / 20), most = Math.min(1, Math.ceil(Math.max(...all) * 20) / 20);
  const px = (v) => left + ((v - low) / (most - low || 1)) * (wide - left - right);
  return svg("svg", { viewBox: `0 0 ${wide} ${high}`, class: "chart arms", role: "img", "aria-label": title + ": " + arms.map((a) => a.arm + " " + percent(a.mean)).join("; ") },
    ticks(low, most, 5).map((v) => [
      svg("line", { x1: px(v), x2: px(v), y1: top, y2: high - 22, class: "grid" }),
      svg("text", { x: px(v), y: high - 8, "text-anchor": "middle" }, Math.round(100 * v) + "%"),
    ]),
    arms.map((a, k) => {
      const y = top + k * row + row / 2;
      return [
        svg("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: "arm-name" }, short(a.arm, 28)),
        svg("line", { x1: px(a.low), x2: px(a.high), y1: y, y2: y, class: "span" }),
        svg("rect", { x: px(a.mean) - 2.5, y: y - 8, width: 5, height: 16, class: a.reference ? "mean reference" : "mean" }),
        a.seeds.map((s) => svg("circle", { cx: px(s.value), cy: y, r: 3.4, class: "seed", onclick: () => onpoint?.(s) },
          svg("title", {}, "seed " + s.seed + ": " + percent(s.value)))),
      ];
    }));
}
