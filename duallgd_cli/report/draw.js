"use strict";
// What the pages share: elements, packed data, formulas, structures and spectra.
// Text from files reaches the page through text nodes alone.

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const el = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const embedded = (id) => JSON.parse(document.getElementById(id).textContent);

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// C8H10N4O2 with its numbers lowered and its charge raised.
function formula(text) {
  const parts = text.match(/[+-]\d*$|\d+|[^\d+-]+|[+-]/g) || [];
  return el("span", { class: "formula" }, parts.map((part) => {
    if (/^\d/.test(part)) return el("sub", {}, part);
    return /^[+-]/.test(part) ? el("sup", {}, part.replace("-", "\u2212")) : part;
  }));
}
const percent = (share) =>
  share >= 0.0995 ? `${(100 * share).toFixed(0)} %` : share >= 0.001 ? `${(100 * share).toFixed(1)} %` : share > 0 ? "< 0.1 %" : "0 %";
function bar(share, title = percent(share)) {
  const inner = el("i");
  inner.style.width = `${Math.max(1.5, 100 * Math.min(1, share))}%`;
  return el("span", { class: "bar", role: "img", "aria-label": title }, inner);
}

// A molecule; `mark` says which atoms are marked. Underneath lies how many have a bond, where candidates differ.
function structure(drawing, label, certainty) {
  if (!drawing) return el("p", { class: "none" }, "no drawing");
  const [width, height] = drawing.box;
  const marks = svg("g", { class: "marks" });
  const picture = svg("svg", { class: "molecule", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  picture.style.maxWidth = `${Math.round(width * 1.25)}px`;
  if (certainty) picture.append(svg("g", { class: "certainty" }, drawing.bonds.map(([a, b], bond) => {
    if (certainty[bond] == null) return null;
    const shared = segment(drawing, a, b);
    shared.style.opacity = String(0.1 + 0.4 * certainty[bond] ** 2);
    return shared;
  })));
  picture.append(marks, bondLines(drawing), svg("g", {}, drawing.labels.map((one) => atomLabel(drawing.atoms[one[0]], one))));
  return picture;
}
const shades = { O: "O", N: "N", S: "S", Se: "S", P: "P", F: "hal", Cl: "hal", Br: "hal", I: "hal" };
// Lines of all bonds, one path a colour; each half of a bond has that of its atom, and labels stay free.
function bondLines({ atoms, bonds, labels }) {
  const shade = new Map(labels.map(([atom, symbol]) => [atom, shades[symbol] || "C"]));
  const paths = new Map();
  const line = (kind, x1, y1, x2, y2) =>
    paths.set(kind, `${paths.get(kind) || ""}M${x1.toFixed(1)},${y1.toFixed(1)}L${x2.toFixed(1)},${y2.toFixed(1)}`);
  for (const [a, b, order, side] of bonds) {
    const [[x1, y1], [x2, y2]] = [atoms[a], atoms[b]];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1, [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const offsets = order === 3 ? [0, 4.5, -4.5] : order === 2 ? (side ? [0, 5 * side] : [2.5, -2.5]) : [0];
    for (const away of offsets) {
      const cut = order === 2 && side && away ? 4 : 0; // what lies inside a ring is shorter
      const [from, to] = [shade.has(a) ? 8.5 : cut, length - (shade.has(b) ? 8.5 : cut)];
      const at = (way) => [x1 + ux * way - uy * away, y1 + uy * way + ux * away];
      const [one, other] = [shade.get(a) || "C", shade.get(b) || "C"];
      if (one === other) line(one, ...at(from), ...at(to));
      else { line(one, ...at(from), ...at((from + to) / 2)); line(other, ...at((from + to) / 2), ...at(to)); }
    }
  }
  return svg("g", {}, [...paths].map(([kind, d]) => svg("path", { class: kind, d })));
}
// An element with its hydrogens to the right (r), to the left (l), above (u) or below (d), and its charge.
function atomLabel([x, y], [, symbol, hydrogens, charge, side]) {
  const small = (text, dy) => svg("tspan", { class: "small", dy }, text);
  const sign = charge ? [small(`${Math.abs(charge) > 1 ? Math.abs(charge) : ""}${charge > 0 ? "+" : "\u2212"}`, -5)] : [];
  const many = hydrogens > 1 ? [small(String(hydrogens), 3)] : [];
  const beside = hydrogens && (side === "r" || side === "l");
  const half = 5 * symbol.length, base = y + 5;
  // A number that is set low lifts what follows, so that it stands on the line again.
  const back = many.length ? -3 : 0;
  const text = (place, anchor, ...inside) => svg("text", { x: place, y: base, "text-anchor": anchor }, inside);
  const shown = [];
  if (beside && side === "l") shown.push(text(x + half, "end", "H", ...many, svg("tspan", { dy: back }, symbol), ...sign));
  else if (beside) shown.push(text(x - half, "start", symbol, "H", ...many, ...(back && charge ? [small("", back)] : []), ...sign));
  else shown.push(text(charge ? x - half : x, charge ? "start" : "middle", symbol, ...sign));
  if (hydrogens && !beside) shown.push(svg("text", { x, y: base + (side === "u" ? -13 : 13), "text-anchor": "middle" }, "H", ...many));
  return svg("g", { class: shades[symbol] || "C" }, shown);
}
function segment(drawing, a, b) {
  const [[x1, y1], [x2, y2]] = [drawing.atoms[a], drawing.atoms[b]];
  return svg("line", { x1, y1, x2, y2 });
}
function mark(picture, drawing, atoms) {
  const marks = picture.querySelector(".marks");
  if (!marks) return;
  const chosen = new Set(atoms);
  const bonds = drawing.bonds.filter(([a, b]) => chosen.has(a) && chosen.has(b));
  marks.replaceChildren(
    ...bonds.map(([a, b]) => segment(drawing, a, b)),
    ...atoms.map((atom) => svg("circle", { cx: drawing.atoms[atom][0], cy: drawing.atoms[atom][1], r: 9 })),
  );
}

// One hint near the pointer or the focused peak.
function hint(lines, x, y) {
  const box = document.getElementById("hint");
  box.hidden = !lines;
  if (!lines) return;
  box.replaceChildren(...lines);
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  box.style.top = `${y + height + 24 > innerHeight ? Math.max(4, y - height - 12) : y + 14}px`;
}

// A spectrum that can be zoomed: drag, wheel with Ctrl, + - 0, arrows walk along the peaks. Others may hang below it.
class SpectrumView {
  // `stack`: plots that show the same range; `all`: their peaks; `chosen`: told of the peak under the pointer, or null.
  constructor(peaks, precursor, chosen, stack = [], all = peaks) {
    Object.assign(this, { precursor, chosen, stack, all, at: -1, explained: null, mirrored: null });
    this.peaks = [...peaks].sort((a, b) => a.mz - b.mz);
    const last = Math.max(precursor || 0, ...all.map((p) => p.mz), 1), first = Math.min(precursor || last, ...all.map((p) => p.mz), last);
    const margin = 0.06 * (last - first) + 5;
    this.range = this.whole = [Math.max(0, first - margin), last + margin];
    this.canvas = svg("svg", { class: "spectrum", tabindex: 0, role: "application",
      "aria-label": "Spectrum. Arrow keys walk along the peaks, plus and minus zoom, 0 shows all." });
    this.node = el("div", { class: "plot" }, this.canvas);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  listen() {
    const at = (event) => this.mz(event.clientX - this.canvas.getBoundingClientRect().left);
    const on = (kind, act, options) => this.canvas.addEventListener(kind, act, options);
    let from = null;
    on("pointerdown", (event) => { if (event.button === 0) { from = at(event); this.canvas.setPointerCapture(event.pointerId); } });
    on("pointermove", (event) => (from === null ? this.choose(this.near(event), event.clientX, event.clientY) : this.select(from, at(event))));
    on("pointerup", (event) => {
      const to = at(event);
      if (from !== null && Math.abs(this.x(to) - this.x(from)) > 6) this.zoom(Math.min(from, to), Math.max(from, to));
      else this.select(0, 0);
      from = null;
    });
    on("pointerleave", () => { if (from === null) this.choose(-1); });
    on("blur", () => this.choose(-1));
    on("dblclick", () => this.zoom(...this.whole));
    on("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.scale(event.deltaY > 0 ? 1.25 : 0.8, at(event));
    }, { passive: false });
    on("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const seen = this.peaks.map((_, n) => n).filter((n) => this.peaks[n].ways.length && this.isSeen(this.peaks[n]));
      if (!seen.length) return;
      const here = seen.indexOf(this.at), start = here < 0 ? (step > 0 ? -1 : seen.length) : here;
      const next = seen[(start + step + seen.length) % seen.length], box = this.canvas.getBoundingClientRect();
      this.choose(next, box.left + this.x(this.peaks[next].mz), box.top + this.y(this.peaks[next].intensity));
    } else if (event.key === "+" || event.key === "=") this.scale(0.7);
    else if (event.key === "-") this.scale(1.4);
    else if (event.key === "0") this.zoom(...this.whole);
    else if (event.key === "Escape") this.choose(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  isSeen(peak) { return peak.mz >= this.range[0] && peak.mz <= this.range[1]; }
  x(mz) { return 44 + ((mz - this.range[0]) / (this.range[1] - this.range[0])) * (this.width - 56); }
  y(intensity) { return this.floor - (intensity / this.top) * (this.floor - 46); }
  mz(x) { return this.range[0] + ((x - 44) / (this.width - 56)) * (this.range[1] - this.range[0]); }

  near(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1, least = 13;
    this.peaks.forEach((peak, n) => {
      if (!this.isSeen(peak) || y < this.y(peak.intensity) - 22 || y > this.floor + 4) return;
      const away = Math.abs(this.x(peak.mz) - x) - (peak.ways.length ? 3 : 0);
      if (away < least) [best, least] = [n, away];
    });
    return best;
  }

  choose(n, x = 0, y = 0) {
    const peak = this.peaks[n] || null;
    if (n !== this.at) {
      this.at = n;
      this.canvas.querySelectorAll(".at").forEach((line) => line.classList.remove("at"));
      this.canvas.querySelector(`[data-peak="${n}"]`)?.classList.add("at");
      this.chosen(peak);
    }
    hint(peak && peakWords(peak), x, y);
  }

  select(from, to) {
    const [low, high] = [this.x(Math.min(from, to)), this.x(Math.max(from, to))];
    filled(this.canvas.querySelector(".selected"), { x: low, width: from === to ? 0 : high - low, y: 8, height: this.floor - 8 }, []);
  }

  scale(factor, about = (this.range[0] + this.range[1]) / 2) {
    this.zoom(about + (this.range[0] - about) * factor, about + (this.range[1] - about) * factor);
  }

  zoom(low, high) {
    const least = 0.5;
    if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
    const range = [Math.max(low, this.whole[0]), Math.min(high, this.whole[1])];
    for (const one of this.stack.length ? this.stack : [this]) { one.range = range; one.draw(); }
  }

  // Marks the peaks that a candidate's fragments explain; null ends it.
  ask(explained) {
    this.explained = explained;
    this.canvas.classList.toggle("asking", explained !== null);
    this.canvas.querySelectorAll("[data-peak]").forEach((line) =>
      line.classList.toggle("by", Boolean(explained && explained.has(this.peaks[line.dataset.peak].key))));
  }

  // Hangs other peaks below, as pairs of m/z and height; those that were measured, too, are marked. Null takes them away.
  mirror(peaks) {
    this.mirrored = peaks;
    this.draw();
  }

  draw() {
    const base = this.stack.length > 1 ? 170 : Math.max(210, Math.min(320, 0.42 * this.node.clientWidth));
    this.width = Math.max(260, this.node.clientWidth);
    this.floor = base - 30;
    this.depth = this.mirrored ? 100 : 0;
    const height = base + this.depth, seen = this.peaks.filter((peak) => this.isSeen(peak));
    this.top = Math.max(...seen.map((peak) => peak.intensity), 1e-6);
    filled(this.canvas, { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` }, []);
    this.canvas.replaceChildren(this.axes(), svg("rect", { class: "selected" }), this.parent(), this.below(),
      ...seen.sort((a, b) => a.ways.length - b.ways.length).map((peak) => this.stick(peak)), this.labels(seen));
    this.ask(this.explained);
  }

  axes() {
    const span = this.range[1] - this.range[0], bottom = this.floor + this.depth;
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 500].find((s) => span / s <= this.width / 75) || 1000;
    const group = svg("g", { class: "axes" });
    for (let mz = Math.ceil(this.range[0] / step) * step; mz <= this.range[1]; mz += step)
      group.append(svg("line", { x1: this.x(mz), x2: this.x(mz), y1: bottom, y2: bottom + 4 }),
        svg("text", { x: this.x(mz), y: bottom + 18, "text-anchor": "middle" }, String(+mz.toFixed(1))));
    for (const share of [0, 0.5, 1]) {
      const y = this.y(share * this.top);
      group.append(svg("line", { x1: 44, x2: this.width - 12, y1: y, y2: y, class: share ? "grid" : "" }),
        svg("text", { x: 39, y: y + 4, "text-anchor": "end" }, `${+(100 * share * this.top).toPrecision(2)}%`));
    }
    group.append(svg("text", { x: this.width - 12, y: bottom + 28, "text-anchor": "end" }, "m/z"));
    return group;
  }

  parent() {
    if (!this.precursor || !this.isSeen({ mz: this.precursor })) return svg("g");
    const x = this.x(this.precursor), y = this.floor + this.depth;
    return svg("path", { class: "precursor", d: `M${x - 4},${y + 7}L${x},${y + 1}L${x + 4},${y + 7}Z` },
      svg("title", {}, `precursor m/z ${this.precursor.toFixed(4)}`));
  }

  below() {
    return svg("g", { class: "below" }, (this.mirrored || []).filter(([mz]) => this.isSeen({ mz })).map(([mz, height]) => {
      const isMeasured = this.all.some((peak) => Math.abs(peak.mz - mz) <= Math.max(0.003, 1e-5 * mz));
      return svg("line", { class: isMeasured ? "both" : "missing", x1: this.x(mz), x2: this.x(mz), y1: this.floor + 1, y2: this.floor + 1 + (this.depth - 6) * height },
        svg("title", {}, `m/z ${mz.toFixed(4)}, ${isMeasured ? "measured, too" : "not measured"}`));
    }));
  }

  stick(peak) {
    const x = this.x(peak.mz), kind = peak.ways.length ? "peak explained" : "peak";
    return svg("line", { class: kind, "data-peak": this.peaks.indexOf(peak), x1: x, x2: x, y1: this.floor, y2: this.y(peak.intensity) });
  }

  labels(seen) {
    const group = svg("g", { class: "labels" }), taken = [];
    const byHeight = [...seen].sort((a, b) => b.intensity - a.intensity);
    for (const peak of byHeight.filter((one) => one.ways.length || one.intensity > 0.03 * this.top).slice(0, 60)) {
      const way = peak.ways[0], x = this.x(peak.mz), y = this.y(peak.intensity) - 5;
      const half = way ? Math.max(24, 3.6 * way[0].length) : 22;
      const box = [x - half, x + half, y - (way ? 25 : 12), y + 2];
      const stands = this.peaks.some((p) => p !== peak && this.isSeen(p) && Math.abs(this.x(p.mz) - x) < half && this.y(p.intensity) < y + 2);
      if (stands || taken.some((t) => box[0] < t[1] && box[1] > t[0] && box[2] < t[3] && box[3] > t[2])) continue;
      taken.push(box);
      group.append(svg("text", { x, y, "text-anchor": "middle", class: way ? "explained" : "" }, peak.mz.toFixed(way ? 4 : 2)));
      if (way) group.append(svg("text", { x, y: y - 12, "text-anchor": "middle", class: "sub" }, lowered(way[0])));
    }
    return group;
  }
}
const lowered = (text) => text.replace(/\d/g, (digit) => String.fromCharCode(0x2080 + Number(digit)));

function peakWords(peak) {
  const share = `${(100 * peak.intensity).toPrecision(3)} %`;
  const head = el("div", { class: "head" }, el("b", {}, `m/z ${peak.mz.toFixed(4)}`), ` · ${share}${peak.label ? ` · ${peak.label}` : ""}`);
  if (!peak.ways.length) return [head, el("div", { class: "quiet" }, "not explained by the formula")];
  return [head, ...peak.ways.map(([text, ppm, loss]) =>
    el("div", {}, formula(text), loss ? el("span", { class: "quiet" }, "  loss of ", formula(loss)) : el("span", { class: "quiet" }, "  the whole ion"),
      el("span", { class: "ppm" }, `${ppm > 0 ? "+" : ""}${ppm.toFixed(1)} ppm`.replace("-", "\u2212"))))];
}

// What MS1 shows of the isotopes of an ion, a stick each, in the outline of what the formula would show.
function isotopePlot(bars) {
  const step = 62, height = 130, y = (share) => height - 20 - Math.min(1.05, share) * (height - 50);
  const named = (offset) => (offset ? `M${offset > 0 ? "+" : "\u2212"}${Math.abs(offset)}` : "M");
  const words = bars.map(([offset, here, there]) => `${named(offset)}: ${percent(here)} measured, ${percent(there)} expected`).join("; ");
  const width = step * bars.length + 8;
  const picture = svg("svg", { class: "isotopes", role: "img", "aria-label": words, viewBox: `0 0 ${width} ${height}`, width, height },
    svg("line", { class: "floor", x1: 4, x2: width - 4, y1: y(0), y2: y(0) }));
  bars.forEach(([offset, here, there], place) => {
    const x = step * (place + 0.5) + 4, text = (at, label, kind) => svg("text", { x, y: at, "text-anchor": "middle", class: kind }, label);
    picture.append(svg("rect", { class: "expected", x: x - 8, width: 16, y: y(there), height: y(0) - y(there) }),
      svg("line", { class: "measured", x1: x, x2: x, y1: y(0), y2: y(here) }), text(height - 6, named(offset), ""));
    if (offset) picture.append(text(y(Math.max(here, there)) - 15, percent(here), "measured"), text(y(Math.max(here, there)) - 4, percent(there), ""));
  });
  return picture;
}
