// Data come as scripts that hand over one string each (see packing.py): base64 of deflate of bytes.
const SCALE = 1024;
const arrived = new Map(); // strings nobody has asked for yet
const awaited = new Map(); // name -> what to do with its string
const loaded = new Map(); // name -> promise of its bytes

window.smopdData = function (name, text) {
  const take = awaited.get(name);
  if (take) { awaited.delete(name); take(text); } else { arrived.set(name, text); }
};

function received(name) {
  return new Promise((take, refuse) => {
    if (arrived.has(name)) { take(arrived.get(name)); arrived.delete(name); return; }
    awaited.set(name, take);
    if (name === "index") return; // the page itself asks for it
    const script = document.createElement("script");
    script.src = "data/" + name + ".js";
    script.onerror = () => { awaited.delete(name); loaded.delete(name); refuse(new Error("data/" + name + ".js is not there")); };
    document.head.append(script);
  });
}

function bytesOf(name) {
  if (!loaded.has(name)) loaded.set(name, received(name).then(inflate));
  return loaded.get(name);
}

async function inflate(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function jsonOf(name) {
  return JSON.parse(new TextDecoder().decode(await bytesOf(name)));
}

// One conversation of a pack: JSON, then columns of numbers.
async function conversationOf(row) {
  const bytes = await bytesOf("p" + String(row.pack).padStart(5, "0"));
  const view = new DataView(bytes.buffer);
  let at = 4 * (view.getUint32(0, true) + 1);
  for (let k = 0; k < row.place; k++) at += view.getUint32(4 * (k + 1), true);
  const length = view.getUint32(at, true);
  const record = JSON.parse(new TextDecoder().decode(bytes.subarray(at + 4, at + 4 + length)));
  return withTokens(record, bytes.buffer, at + 4 + length);
}

function withTokens(record, buffer, at) {
  const lengths = record.columns, models = record.models, trained = lengths.length === 3 * models.length + 7;
  const wide = lengths.length - models.length - (trained ? 1 : 0);
  const columns = lengths.map((n, k) => {
    const column = k < wide ? new Uint16Array(buffer, at, n) : new Uint8Array(buffer, at, n);
    at += n * (k < wide ? 2 : 1);
    return column;
  });
  if (!columns.length) return record;
  const next = () => columns.shift();
  const all = { piece: next(), entropy: next(), logp: next() };
  if (trained) Object.assign(all, { teacherEntropy: next(), teacherLogp: next(), divergence: next() });
  const others = models.map((name) => ({ name, piece: next(), logp: next() }));
  others.forEach((one) => { one.counts = next(); one.ends = sums(one.counts); });
  if (trained) all.flags = next();
  let first = 0;
  for (const turn of record.turns) {
    for (const part of turn.parts) { part.tokens = reader(record, all, others, part, first, trained); first += part.count; }
  }
  return record;
}

function sums(counts) {
  const ends = new Uint32Array(counts.length);
  let total = 0;
  for (let i = 0; i < counts.length; i++) { total += counts[i]; ends[i] = total; }
  return ends;
}

// What is known of each token of a part; numbers in nats.
function reader(record, all, others, part, first, trained) {
  const nats = (column, i) => column[first + i] / SCALE;
  return {
    count: part.count,
    trained,
    text: (i) => record.pieces[all.piece[first + i]] ?? "",
    entropy: (i) => nats(all.entropy, i),
    logp: (i) => -nats(all.logp, i),
    teacherEntropy: (i) => nats(all.teacherEntropy, i),
    teacherLogp: (i) => -nats(all.teacherLogp, i),
    divergence: (i) => nats(all.divergence, i),
    kept: (i) => !trained || Boolean(all.flags[first + i] & 1),
    clipped: (i) => trained && Boolean(all.flags[first + i] & 2),
    weight: () => part.weight ?? 1,
    // The likely tokens of a model, the sampled one among them, the likeliest first.
    likely: (i, model) => {
      const one = others.find((other) => other.name === model);
      const own = { text: record.pieces[all.piece[first + i]] ?? "", logp: model === "teacher" ? -nats(all.teacherLogp, i) : -nats(all.logp, i), sampled: true };
      const found = [own];
      if (one) {
        const end = one.ends[first + i];
        for (let k = end - one.counts[first + i]; k < end; k++) {
          found.push({ text: record.pieces[one.piece[k]] ?? "", logp: -one.logp[k] / SCALE, sampled: false });
        }
      }
      return found.sort((a, b) => b.logp - a.logp);
    },
  };
}
