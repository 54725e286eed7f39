// The report: a table of features, and one of them in full.
//
// A large run is an index, which is the table of all features, and pages, each with some of them.

const about = embedded("about"); // place of this page among others, see `write_report`
const table = embedded("features");
const rows = table.rows.map((values, place) => ({ number: about.first + place, ...Object.fromEntries(values.map((value, n) => [table.columns[n], value])) }));
const byNumber = new Map(rows.map((row) => [row.number, row])); // whatever order the rows are in
const $ = (id) => document.getElementById(id);
// `shown`: rows that pass the filters; `listed`: of these, those that stand in the table: ions of a folded compound do not.
const state = { sort: null, down: false, open: -1, shown: rows, listed: rows, made: 0 };
const unfolded = new Set(); // compounds whose ions are all listed
const atOnce = 200; // rows that are made when the table is scrolled to its end
const kept = new Map();

// What a reader made of features, by their numbers; kept in the browser under the run's own key.
const reviewsOf = `duallgd-review-${about.key}`;
function reviewed() {
  try { return Object(JSON.parse(localStorage.getItem(reviewsOf))); } catch { return {}; }
}
let reviews = reviewed();
function judge(number, change) {
  const own = { ...reviews[number], ...change };
  reviews = { ...reviews, ...reviewed(), [number]: own };
  if (!own.verdict && !own.note) delete reviews[number];
  try { localStorage.setItem(reviewsOf, JSON.stringify(reviews)); } catch { /* no storage: as long as the page is open */ }
  byNumber.get(number)?.node?.querySelector("td.review").replaceChildren(...verdict(number));
}
function verdict(number) {
  const { verdict: word = "", note = "" } = reviews[number] || {};
  return [word && el("b", { class: word }, word), word && note ? ": " : "", el("span", { class: "quiet" }, note)].filter(Boolean);
}

// Something packed, unpacked once; of many the latest are kept.
async function unpackedOnce(id) {
  if (!kept.has(id)) {
    if (kept.size > 60) kept.delete(kept.keys().next().value);
    kept.set(id, unpacked(id));
  }
  return kept.get(id);
}
const feature = (number) => unpackedOnce(`feature-${number - about.first}`);
async function firstDrawing(number) {
  if (!about.is_index) return (await feature(number)).candidates[0].drawing;
  return (await unpackedOnce(`drawings-${Math.floor(number / about.drawings)}`))[number % about.drawings];
}
// Where a feature is shown in full: here, or on a page of its own among a thousand.
const isHere = (number) => !about.is_index && byNumber.has(number);
const placeOf = (number) => `${about.pages[Math.floor(number / about.size)]}#feature=${number + 1}`;

// There is nothing to mend: it has candidates, or another ion of its compound has.
const isSettled = ({ status }) => status === "ok" || status === "same_compound";

const columns = [
  ["id", "Feature", (r) => [about.is_index ? el("a", { class: "clamp", href: placeOf(r.number) }, r.id) : el("span", { class: "clamp" }, r.id), el("span", { class: "ions" })]],
  ["mz", "m/z", (r) => (r.mz == null ? "" : r.mz.toFixed(4))],
  ["rt", "RT (min)", (r) => (r.rt == null ? "" : (r.rt / 60).toFixed(2))],
  ["intensity", "Intensity", (r) => (r.intensity == null ? "" : r.intensity.toExponential(1))],
  ["compound", "Compound", (r) => r.compound],
  ["adduct", "Adduct", (r) => r.adduct],
  ["formula", "Formula", (r) => formula(r.formula)],
  ["smiles", "First candidate", () => ""],
  ["called", "Name", (r) => r.called],
  ["level", "Level", (r) => [r.level, r.chance == null ? null : el("span", { class: "quiet" }, ` ${r.chance.toFixed(2)}`)]],
  ["confidence", "Confidence", (r) => (r.smiles ? [bar(r.confidence), el("span", { class: "number" }, percent(r.confidence))] : "")],
  ["top10", "P(first ten)", (r) => (r.smiles ? percent(r.top10) : "")],
  ["part", "Most certain part", (r) => (r.part ? [r.part[0], el("span", { class: "quiet" }, ` ${r.part[1].toFixed(2)}`)] : "")],
  ["status", "Status", (r) => el("span", { class: `status ${r.status === "ok" ? "ok" : isSettled(r) ? "quiet" : "other"}` }, r.status.replaceAll("_", " "))],
  ["review", "Review", (r) => verdict(r.number)],
].filter(([key]) => (key === "status" ? rows.some((row) => row.status !== "ok")
  : !["part", "rt", "intensity", "compound", "called"].includes(key) || rows.some((row) => row[key] != null && row[key] !== "")));

const drawn = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    drawn.unobserve(target);
    const number = Number(target.closest("tr").dataset.number);
    firstDrawing(number).then((drawing) => target.replaceChildren(structure(drawing, byNumber.get(number).smiles)));
  }
}, { rootMargin: "300px" });

function tableHead() {
  $("head").append(...columns.map(([key, title]) =>
    el("th", { class: key, scope: "col", "aria-sort": "none" },
      el("button", { type: "button", title: key === "level" && `the finest answer that is certain, which takes ${about.certain} or more`, onclick: () => sortBy(key) }, title))));
}
function tableBody() {
  for (const row of rows) {
    const texts = [row.id, row.mz?.toFixed(4), row.mz, row.adduct, row.formula, row.smiles, row.inchikey, row.status, row.compound, row.names];
    row.text = [...texts, ...row.parts.map((part) => table.parts[part])].join(" ").toLowerCase();
  }
  $("status").parentNode.hidden = rows.every((row) => row.status === "ok");
  for (const status of new Set(rows.map((row) => row.status))) $("status").append(el("option", { value: status }, status.replaceAll("_", " ")));
  for (const level of about.levels.filter((one) => rows.some((row) => row.level === one)))
    $("level").append(el("option", { value: level }, level === "structure" || level === "nothing" ? level : `${level} or finer`));
  new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) more(state.made + atOnce); }, { root: document.querySelector(".scroll"), rootMargin: "600px" }).observe($("more"));
}
function rowNode(row) {
  if (!row.node) {
    row.node = el("tr", { "data-number": row.number, tabindex: -1, "aria-selected": String(row.number === state.open), onclick: () => choose(row.number) },
      columns.map(([key, , cell]) => el("td", { class: key }, cell(row))));
    if (row.smiles) drawn.observe(row.node.querySelector("td.smiles"));
  }
  return row.node;
}
// As many rows of those that are listed; the others wait until they are scrolled to.
function more(count) {
  const end = Math.min(count, state.listed.length);
  if (end <= state.made) return;
  const some = state.listed.slice(state.made, end);
  $("body").append(...some.map(rowNode));
  some.forEach(markIons);
  state.made = end;
}
// Of a compound the first ion stands in the table, and the others below it once it is unfolded.
function show(shown) {
  state.shown = shown;
  const ions = new Map();
  for (const row of shown) {
    const head = row.compound && ions.get(row.compound);
    Object.assign(row, { head, ions: [] });
    if (head) head.ions.push(row);
    else if (row.compound) ions.set(row.compound, row);
  }
  const heads = shown.filter((row) => !row.head);
  state.listed = heads.flatMap((row) => (unfolded.has(row.compound) ? [row, ...row.ions] : row));
  state.made = 0;
  $("body").replaceChildren();
  more(atOnce);
  const compounds = heads.length < shown.length ? ` in ${heads.length} compounds` : "";
  $("count").textContent = `${shown.length === rows.length ? rows.length : `${shown.length} of ${rows.length}`} features${compounds}`;
}
function markIons(row) {
  row.node.classList.toggle("other", Boolean(row.head));
  const isOpen = unfolded.has(row.compound), n = row.ions.length;
  row.node.querySelector(".ions").replaceChildren(n ? el("button", { type: "button", class: "fold-ions", "aria-expanded": String(isOpen),
    title: row.ions.map((ion) => `${ion.id} ${ion.adduct}`).join(", "), onclick: (event) => { event.stopPropagation(); fold(row, !isOpen); } },
    `${isOpen ? "−" : "+"} ${n} ion${n > 1 ? "s" : ""}`) : "");
}
function fold(row, isOpen) {
  if (isOpen) unfolded.add(row.compound); else unfolded.delete(row.compound);
  const made = state.made;
  show(state.shown);
  more(made);
  row.node.querySelector(".fold-ions")?.focus();
}
// How fine the answer is that is certain, and of equal ones how certain: 0 to 6, -1 without any.
const finer = (row) => (row.level ? about.levels.length - 1 - about.levels.indexOf(row.level) + 0.9 * (row.chance ?? 0) : -1);
const compare = new Intl.Collator("en", { numeric: true }).compare;
function sortBy(key) {
  const numbers = ["mz", "rt", "intensity", "confidence", "top10", "part", "level"].includes(key);
  state.down = state.sort === key ? !state.down : numbers && key !== "mz" && key !== "rt";
  state.sort = key;
  const said = (row) => { const one = reviews[row.number]; return one ? `${one.verdict || "~"} ${one.note || ""}` : "~~"; };
  const value = (row) => (key === "review" ? said(row) : key === "part" ? (row.part ? row.part[1] : -1) : key === "level" ? finer(row) : row[key] ?? -1);
  const order = (a, b) => (numbers ? value(a) - value(b) : compare(value(a), value(b))) * (state.down ? -1 : 1) || a.number - b.number;
  rows.sort(order);
  filter();
  document.querySelectorAll("#head th").forEach((th) =>
    th.setAttribute("aria-sort", th.classList.contains(key) ? (state.down ? "descending" : "ascending") : "none"));
}
function filter() {
  const number = (id, otherwise) => ($(id).value === "" ? otherwise : Number($(id).value));
  const least = number("least", 0), ranges = [["mz", number("low", -Infinity), number("high", Infinity)],
    ["rt", 60 * number("early", -Infinity), 60 * number("late", Infinity)], ["intensity", number("faint", -Infinity), Infinity]];
  const words = $("text").value.toLowerCase().split(/\s+/).filter(Boolean), status = $("status").value, level = $("level").value;
  const coarsest = about.levels.indexOf(level);
  // An m/z is as exact as it is typed; everything else is looked for as text.
  const tests = words.map((word) => {
    const decimals = /^\d+\.(\d+)$/.exec(word)?.[1].length, mz = Number(word);
    return (row) => row.text.includes(word) || (decimals && row.mz != null && Math.abs(row.mz - mz) <= 0.501 * 10 ** -decimals);
  });
  show(rows.filter((row) => {
    const inRange = ranges.every(([key, low, high]) => (row[key] == null ? low === -Infinity && high === Infinity : row[key] >= low && row[key] <= high));
    const isReviewed = !$("reviewed").value || (reviews[row.number]?.verdict || "open") === $("reviewed").value;
    const isFine = !level || (level === "nothing" ? row.level === level : row.level && about.levels.indexOf(row.level) <= coarsest);
    return inRange && isFine && isReviewed && row.confidence >= least && (!status || row.status === status) && tests.every((test) => test(row));
  }));
  $("least-shown").textContent = percent(least);
}
function walk(step) {
  const { listed } = state;
  if (!listed.length) return;
  const here = listed.findIndex((row) => row.number === state.open), next = here < 0 ? 0 : here + step;
  const beyond = state.sort === null && state.shown.length === rows.length ? (step > 0 ? about.first + rows.length : about.first - 1) : -1;
  if (!listed[next] && beyond >= 0 && beyond < about.total) return leave(beyond);
  open(listed[Math.max(0, Math.min(listed.length - 1, next))].number);
}

async function open(number, quietly = false) {
  const row = byNumber.get(number);
  if (!row) return;
  const before = byNumber.get(state.open);
  state.open = number;
  before?.node?.setAttribute("aria-selected", "false");
  rowNode(row).setAttribute("aria-selected", "true");
  if (row.head && !unfolded.has(row.compound)) { unfolded.add(row.compound); show(state.shown); }
  if (!quietly) {
    more(state.listed.indexOf(row) + 1);
    row.node.scrollIntoView({ block: "nearest" });
    try { if (!about.is_index) history.replaceState(null, "", `#feature=${number + 1}`); } catch { /* a page without a place of its own */ }
  }
  if (about.is_index) return;
  const node = whole(await feature(number));
  if (state.open === number) { $("detail").replaceChildren(node); $("detail").scrollTop = 0; hint(null); }
}

// Another page shows it.
const leave = (number) => { location.href = placeOf(number); };

// By pointer: where the table stands above the feature, the feature comes into view.
async function choose(number) {
  if (!isHere(number)) return leave(number);
  await open(number);
  if ($("detail").getBoundingClientRect().left <= $("overview").getBoundingClientRect().left) $("detail").scrollIntoView();
}

function whole(values) {
  const view = { cards: [], plots: [], values, hypothesis: values.candidates[0]?.hypothesis ?? 0, pinned: null, isMirrored: true };
  return el("article", { class: "feature", "data-number": values.number }, title(values), reviewing(values.number), warnings(values), ladder(values), contained(view), spectra(view), isotopes(values),
    candidates(view), fragments(view), tried(values));
}
function title(values) {
  const first = values.candidates[0];
  const about = [values.mz == null ? "no precursor" : `m/z ${values.mz.toFixed(4)}`, values.rt == null ? "" : `${(values.rt / 60).toFixed(2)} min`,
    values.adduct, values.compound && `compound ${values.compound}`];
  return el("header", { class: "title" },
    el("div", {}, el("h2", { title: values.name && `in the file: ${values.name}` }, `Feature ${values.id}`),
      el("p", { class: "quiet" }, about.filter(Boolean).join(" · "), " · ", formula(first ? first.formula : values.formula))),
    values.candidates.length ? el("dl", { class: "figures" },
      el("div", {}, el("dt", {}, "first is right"), el("dd", {}, percent(first.confidence))),
      el("div", {}, el("dt", {}, "in the first ten"), el("dd", {}, percent(values.confidence_top10)))) : null,
    el("nav", {}, el("button", { title: "Previous (k)", "aria-label": "Previous feature", onclick: () => walk(-1) }, "‹"),
      el("button", { title: "Next (j)", "aria-label": "Next feature", onclick: () => walk(1) }, "›")));
}
function reviewing(number) {
  const { verdict: word = "", note = "" } = reviews[number] || {};
  const buttons = ["accepted", "rejected"].map((name) => el("button", { type: "button", "data-verdict": name, "aria-pressed": String(word === name), onclick: () => {
    judge(number, { verdict: reviews[number]?.verdict === name ? "" : name });
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.verdict === reviews[number]?.verdict)));
  } }, { accepted: "Accept", rejected: "Reject" }[name]));
  const words = el("input", { type: "text", class: "note", "aria-label": "Note", placeholder: "note", maxlength: 300, oninput: () => judge(number, { note: words.value }) });
  words.value = note;
  return el("div", { class: "tabs reviewing", role: "group", "aria-label": "Review" }, buttons, words);
}
// The rows that are shown, with what was made of them, as a table for a spreadsheet.
function exported() {
  const heads = ["feature", "mz", "rt_seconds", "intensity", "compound_id", "adduct", "formula", "smiles", "inchikey", "level", "confidence", "status", "review", "note"];
  // Text that a spreadsheet would run as a formula gets an apostrophe in front, as in the tables of a run.
  const cell = (value) => { const text = String(value ?? ""), safe = /^\s*[=+@-]./.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text; return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe; };
  const lines = state.shown.map((r) => [r.id, r.mz, r.rt, r.intensity, r.compound, r.adduct, r.formula, r.smiles, r.inchikey, r.level, r.smiles ? r.confidence : "", r.status,
    reviews[r.number]?.verdict, reviews[r.number]?.note].map(cell).join(","));
  const link = el("a", { href: URL.createObjectURL(new Blob([[heads.join(","), ...lines, ""].join("\n")], { type: "text/csv" })), download: `${document.querySelector("h1").textContent.replace(/\.\w+$/, "")}.reviewed.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
// What explains each peak, and in which candidates: the spectrum as a table.
function fragments(view) {
  const { values } = view, own = values.hypotheses[view.hypothesis];
  if (!own?.explained.length) return null;
  const within = own.explained.map((_, row) => values.candidates.filter((one) => one.hypothesis === view.hypothesis && one.explains?.some(([peak]) => peak === row)).map((one) => one.rank));
  const heads = ["m/z", "Intensity", "Formula", "Loss", "ppm", "Candidates", values.spectra.length > 1 && "Energy"].filter(Boolean);
  return el("details", { class: "fragments" }, el("summary", {}, `Table of ${own.explained.length} fragments`), el("table", { class: "plain" },
    el("tr", {}, heads.map((title) => el("th", { scope: "col" }, title))),
    own.explained.map(([which, peak, text, ppm, loss], row) => ({ mz: values.spectra[which].mz[peak], cells: [
      values.spectra[which].mz[peak].toFixed(4), `${(100 * values.spectra[which].intensity[peak]).toPrecision(3)} %`, formula(text), loss ? formula(loss) : "",
      ppm.toFixed(1), within[row].join(", "), values.spectra.length > 1 && values.spectra[which].label] }))
      .sort((a, b) => a.mz - b.mz).map(({ cells }) => el("tr", {}, cells.slice(0, heads.length).map((one) => el("td", {}, one))))));
}
function warnings(values) {
  const failed = isSettled(values) ? null : el("p", { class: "failed" }, el("b", {}, `${values.status.replaceAll("_", " ")}. `), values.remarks.join("; ") || "No candidates.");
  const said = isSettled(values) && values.remarks.length ? el("p", { class: "remarks" }, values.remarks.join(" · ")) : null;
  return el("div", {}, failed, said);
}
const schymanski = {
  "2a": "a spectrum of a library matches", "2b": "no other structure fits nearly as well", 3: "tentative candidates",
  4: "the formula alone", 5: "the exact mass alone",
};
// From the structure to the formula: how probable the best answer of each level is.
function ladder(values) {
  if (!values.level) return null;
  const said = values.schymanski;
  return el("section", { class: "ladder" }, el("h3", {}, "How much is certain ", el("small", {}, `the finest answer of ${about.certain} or more`)),
    el("p", {}, el("b", {}, values.certain), said && [" · ", el("span", { title: schymanski[said] }, `Schymanski level ${said}`), el("span", { class: "quiet" }, ` (${schymanski[said]})`)]),
    el("ol", {}, values.ladder.map(([level, chance, answer]) => el("li", { "aria-current": level === values.level && "true" },
      el("span", { class: "rung" }, level), bar(chance), el("span", { class: "number" }, chance.toFixed(2)),
      el("span", { class: "answer clamp", title: answer }, level === "formula" ? formula(answer) : answer)))));
}
function contained(view) {
  const { values } = view, others = values.other_parts;
  if (!values.parts.length && !others.length) return null;
  return el("section", { class: "parts" }, el("h3", {}, "Parts of the structure ", el("small", {}, "whichever candidate is right; point at one to see it")),
    values.sentence ? el("p", {}, values.sentence) : null,
    el("ul", {}, values.parts.map(([name, kind, share, atoms]) => el("li", { tabindex: 0,
      onpointerenter: () => markPart(view, atoms), onpointerleave: () => markPart(view, null), onfocus: () => markPart(view, atoms), onblur: () => markPart(view, null) },
      el("span", {}, name, el("small", {}, kind)), bar(share), el("span", { class: "number" }, share.toFixed(2))))),
    others.length ? el("details", {}, el("summary", {}, `${others.length} other parts from 0.05`),
      el("p", { class: "others" }, others.map(([name, kind, share]) => el("span", { title: kind }, `${name} `, el("b", {}, share.toFixed(2)))))) : null);
}
function markPart(view, atoms) {
  view.cards.forEach(({ node, candidate }, number) => {
    const picture = node.querySelector("svg.molecule");
    if (picture) mark(picture, candidate.drawing, atoms ? atoms[number] : []);
    node.classList.toggle("without", Boolean(atoms) && !atoms[number].length);
  });
}

// Peaks of one spectrum or of all, with what explains them under one hypothesis.
function peaksOf(values, which, hypothesis) {
  const ways = new Map();
  (values.hypotheses[hypothesis]?.explained || []).forEach(([spectrum, peak, text, ppm, loss], row) => {
    const key = `${spectrum}:${peak}`;
    if (!ways.has(key)) ways.set(key, []);
    ways.get(key).push([text, ppm, loss, row]);
  });
  return values.spectra.flatMap(({ label, mz, intensity }, spectrum) => (which === -1 || which === spectrum ? mz.map((at, peak) => {
    const key = `${spectrum}:${peak}`;
    return { mz: at, which: spectrum, intensity: intensity[peak], label: values.spectra.length > 1 ? label : "", key, ways: ways.get(key) || [] };
  }) : []));
}
function spectra(view) {
  const { values } = view, many = values.spectra.length > 1;
  if (!values.spectra.length) return null;
  const holder = el("div"), tabs = el("div", { class: "tabs", role: "group", "aria-label": "Spectra" }), below = el("span");
  view.hang = () => {
    const library = view.isMirrored ? values.library : null;
    view.plots.at(-1).mirror(library && library.mz.map((mz, n) => [mz, library.intensity[n]]));
    below.replaceChildren(...(library ? [el("br"), `below: the spectrum of ${library.library}${library.name ? `, ${library.name}` : ""} `, el("i", { class: "key both" }), "measured, too ", el("i", { class: "key missing" }), "not measured"] : []));
  };
  view.show = (which) => {
    view.which = which;
    view.plots = [];
    const all = peaksOf(values, which, view.hypothesis), shown = which === -1 ? values.spectra.map((_, n) => n) : [which];
    for (const n of shown) view.plots.push(new SpectrumView(all.filter((peak) => peak.which === n), values.mz, (peak) => markAtoms(view, peak), view.plots, all));
    holder.replaceChildren(...view.plots.flatMap((plot, n) => [shown.length > 1 ? el("p", { class: "quiet energy" }, values.spectra[shown[n]].label) : "", plot.node]).filter(Boolean));
    tabs.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.which) === which)));
    view.hang();
  };
  const choices = many ? [["all", -1], ...values.spectra.map((s, n) => [s.label, n])] : [];
  tabs.append(...choices.map(([label, which]) => el("button", { "data-which": which, onclick: () => view.show(which) }, label)));
  view.show(many ? -1 : 0);
  const own = values.hypotheses[view.hypothesis];
  const zoom = (sign, label, act) => el("button", { title: label, "aria-label": label, onclick: act }, sign);
  const mirror = el("button", { "aria-pressed": "true", class: "mirror", title: "The spectrum of the library, hung below the measured one", onclick: () => {
    view.isMirrored = !view.isMirrored;
    mirror.setAttribute("aria-pressed", String(view.isMirrored));
    view.hang();
  } }, "Mirror");
  return el("section", { class: "measured" },
    el("div", { class: "bar-row" }, el("h3", {}, "Spectrum"), tabs, el("span", { class: "tools" }, values.library ? mirror : null,
      zoom("+", "Zoom in", () => view.plots[0].scale(0.6)), zoom("−", "Zoom out", () => view.plots[0].scale(1.6)),
      zoom("all", "Show the whole spectrum", () => view.plots[0].zoom(...view.plots[0].whole)))),
    holder,
    el("p", { class: "legend quiet" }, own?.n_peaks ? `${own.n_explained} of ${own.n_peaks} peaks (${percent(own.explained_intensity)} of the intensity) ` : "",
      el("i", { class: "key explained" }), "explained by the formula ", el("i", { class: "key by" }), "by the marked candidate ", el("i", { class: "key" }), "not", below));
}
function isotopes({ isotopes: shown }) {
  if (!shown) return null;
  return el("section", {}, el("h3", {}, "Isotopes in MS1 ", el("small", {}, "measured, and in outline those of ", formula(shown.formula), ` ${shown.adduct}`)), isotopePlot(shown.bars));
}

function markAtoms(view, peak) {
  for (const { node, candidate } of view.cards) {
    const picture = node.querySelector("svg.molecule");
    if (!picture) continue;
    const rowsOf = peak && candidate.hypothesis === view.hypothesis ? peak.ways.map((way) => way[3]) : [];
    const found = rowsOf.map((row) => candidate.explains.find(([own]) => own === row)).find(Boolean);
    mark(picture, candidate.drawing, found ? found[1] : []);
    node.classList.toggle("without", Boolean(rowsOf.length) && !found);
  }
}
function ask(view, candidate) {
  if (!view.plots.length) return;
  if (candidate && candidate.hypothesis !== view.hypothesis) {
    view.hypothesis = candidate.hypothesis;
    view.show(view.which);
  }
  if (!candidate) return view.plots.forEach((plot) => plot.ask(null));
  const explained = view.values.hypotheses[candidate.hypothesis].explained;
  const keys = new Set(candidate.explains.map(([row]) => `${explained[row][0]}:${explained[row][1]}`));
  view.plots.forEach((plot) => plot.ask(keys));
}

function candidates(view) {
  const { values } = view;
  if (!values.candidates.length) return null;
  const undrawn = [], shown = [];
  view.cards = values.candidates.filter(isDrawn).map((candidate) => ({ candidate, node: card(view, candidate) }));
  const nodes = new Map(view.cards.map(({ candidate, node }) => [candidate, node]));
  for (const [name, confidence, places] of values.families) {
    const together = places.map((place) => values.candidates[place]), [first, ...others] = together;
    if (!isDrawn(first)) { undrawn.push(...together); continue; }
    shown.push(nodes.get(first));
    if (others.length) shown.push(folded(nodes, name, confidence, first, others));
  }
  undrawn.sort((a, b) => a.rank - b.rank);
  return el("section", { class: "candidates" },
    el("h3", {}, "Candidates ", el("small", {}, "point at one to see its peaks; green: bonds that not all of them have, the greener the more do")),
    el("div", { class: "cards" }, shown), listed(undrawn));
}
const isDrawn = (candidate) => candidate.drawing !== undefined;
let nFolds = 0;
// The others of a family, which a button on the card of its best opens; on paper they are all open.
function folded(nodes, name, confidence, first, others) {
  const id = `family-${++nFolds}`, many = others.length === 1 ? "the other" : `the ${others.length} others`;
  const members = el("div", { class: "members", id, role: "group", "aria-label": `Others of the family of candidate ${first.rank}`, hidden: true },
    others.filter(isDrawn).map((one) => nodes.get(one)), listed(others.filter((one) => !isDrawn(one))));
  const button = el("button", { type: "button", "aria-expanded": "false", "aria-controls": id, onclick: () => {
    members.hidden = !members.hidden;
    button.setAttribute("aria-expanded", String(!members.hidden));
    button.textContent = `${members.hidden ? "Show" : "Hide"} ${many}`;
  } }, `Show ${many}`);
  nodes.get(first).querySelector("header").after(el("div", { class: "fold" },
    el("p", { class: "facts clamp", title: name }, el("b", {}, "family: "), name),
    el("p", { class: "facts", title: "the sum over all candidates of the family, also those that are not shown" }, `${others.length + 1} candidates, together `, el("b", {}, percent(confidence))),
    button));
  return members;
}
// Candidates that are not drawn: in a large report all but the best of the first families.
function listed(others) {
  if (!others.length) return null;
  return el("div", { class: "further" }, el("table", { class: "plain" }, el("tr", {}, ["", "Confidence", "Formula", "SMILES", "InChIKey", "Samples", "From"].map((title) => el("th", { scope: "col" }, title))),
    others.map((one) => el("tr", {}, el("td", {}, el("b", { class: "rank" }, String(one.rank))), el("td", {}, percent(one.confidence)), el("td", {}, formula(one.formula)),
      el("td", { class: "code" }, one.smiles), el("td", { class: "code" }, one.inchikey), el("td", {}, String(one.samples)), el("td", {}, origins(one))))));
}
// Where a candidate comes from: for each source what it is called, and what it did.
const sources = {
  library: ["spectral library", "a spectrum of your library with the same precursor matches"],
  database: ["your database", "a structure of this formula in the file given with --database"],
  enumerated: ["put together", "put together from known molecules and their building blocks, without the network"],
  templates: ["from a known molecule", "drawn by the network, starting from a known molecule"],
  noise: ["drawn from nothing", "drawn by the network bond by bond, starting from the formula alone"],
  analogues: ["from your analogues", "made from a molecule given with --analogues, or from a similar spectrum of a library"],
};
const origins = (candidate) => el("span", { class: "origins" }, candidate.sources.map((name) => {
  const [words, title] = Object.hasOwn(sources, name) ? sources[name] : [name, "a source of your own"];
  return el("span", { class: "origin", title }, words);
}));
function libraryMatch({ library, name, score, matched_peaks: peaks, probability }) {
  return el("p", { class: "facts match", title: "cosine of the two spectra, and how many peaks they share" },
    el("b", {}, library), name ? `: ${name}` : "", ` · cosine ${score.toFixed(2)} · ${peaks} matched peak${peaks === 1 ? "" : "s"}`,
    probability == null ? null : ` · right with probability ${probability.toFixed(2)}`);
}
function card(view, candidate) {
  const own = view.values.hypotheses[candidate.hypothesis];
  const peaks = new Set(own.explained.map(([s, p]) => `${s}:${p}`)).size;
  const mine = new Set(candidate.explains.map(([row]) => `${own.explained[row][0]}:${own.explained[row][1]}`)).size;
  const leave = () => ask(view, view.pinned);
  const choice = el("button", { type: "button", class: "choose", "aria-pressed": "false", title: "Keep its fragments below the spectrum", onclick: () => pin(view, candidate) }, "Keep");
  const node = el("article", { class: "card", tabindex: 0, "aria-label": `Candidate ${candidate.rank}, ${candidate.smiles}`,
    onpointerenter: () => ask(view, candidate), onpointerleave: leave, onfocusin: () => ask(view, candidate), onfocusout: leave },
    el("header", {}, el("b", { class: "rank" }, String(candidate.rank)), bar(candidate.confidence, `confidence ${percent(candidate.confidence)}`),
      el("span", { class: "number" }, percent(candidate.confidence))),
    el("div", { class: "drawing" }, structure(candidate.drawing, candidate.smiles, candidate.certainty)),
    el("p", { class: "facts" }, formula(candidate.formula), candidate.samples ? ` · ${candidate.samples} of ${own.sampled} samples` : "", ` · ${mine} of ${peaks} peaks`),
    candidate.name || candidate.class ? el("p", { class: "facts called clamp" }, el("b", {}, candidate.name), candidate.name && candidate.class ? " · " : "", candidate.class) : null,
    origins(candidate),
    candidate.library_match ? libraryMatch(candidate.library_match) : null,
    candidate.like ? el("p", { class: "facts" }, candidate.like) : null,
    el("p", { class: "code" }, candidate.inchikey),
    el("p", { class: "acts" }, choice, copier("Copy SMILES", candidate.smiles), copier("Copy key", candidate.inchikey)), elsewhere(candidate.inchikey),
    el("details", {}, el("summary", {}, "Scores"), el("table", { class: "plain" },
      candidate.scores.map(([name, value]) => el("tr", {}, el("th", {}, name.replaceAll("_", " ")), el("td", {}, String(value)))))));
  return node;
}
// Keeps what hangs below the spectrum while the pointer goes elsewhere.
function pin(view, candidate) {
  view.pinned = view.pinned === candidate ? null : candidate;
  for (const { node, candidate: own } of view.cards) node.querySelector(".choose").setAttribute("aria-pressed", String(own === view.pinned));
  ask(view, view.pinned);
}
// Where others may know a structure; nothing is asked for until a link is followed.
const databases = {
  PubChem: "https://pubchem.ncbi.nlm.nih.gov/#query=", COCONUT: "https://coconut.naturalproducts.net/search?q=", ChEBI: "https://www.ebi.ac.uk/chebi/search?query=",
};
const elsewhere = (key) => (/^[A-Z]{14}-[A-Z]{10}-[A-Z]$/.test(key) ? el("p", { class: "elsewhere facts" }, Object.entries(databases).map(([name, address]) =>
  el("a", { href: address + key, target: "_blank", rel: "noopener noreferrer" }, name))) : null);
function copier(label, text) {
  const button = el("button", { title: text, onclick: async () => {
    try { await navigator.clipboard.writeText(text); } catch { copied(text); }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1200);
  } }, label);
  return button;
}
function copied(text) {
  const box = el("textarea", {}, text);
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
}

function tried(values) {
  const lines = values.hypotheses.map((one) => el("tr", {}, el("td", {}, formula(one.formula)), el("td", {}, one.adduct),
    el("td", {}, `${one.n_explained} of ${one.n_peaks}`), el("td", {}, String(one.sampled)), el("td", {}, `${one.assembled} + ${one.repaired} repaired`), el("td", {}, String(one.distinct))));
  const names = values.spectra_ids.map(([id, file, index]) => el("li", {}, `${id} · ${file}, index ${index}`));
  return el("details", { class: "tried" }, el("summary", {}, "Formulas tried and spectra read"),
    lines.length ? el("table", { class: "plain wide" }, el("tr", {}, ["Formula", "Adduct", "Peaks explained", "Samples", "Molecules", "Distinct"].map((t) => el("th", {}, t))), lines) : null,
    el("ul", {}, names));
}

function summary() {
  if (about.pages.length && !about.is_index) {
    const place = Math.floor(about.first / about.size), to = (page, text) => (about.pages[page] ? el("a", { class: "button", href: about.pages[page] }, text) : null);
    $("pages").append(...[to(place - 1, "‹ Page before"), el("a", { class: "button", href: about.index }, "All features"), to(place + 1, "Next page ›")].filter(Boolean));
  } else if (about.is_index) {
    $("pages").append(...about.pages.map((href, page) => el("a", { class: "button", href }, `${page * about.size + 1}–${Math.min(about.total, (page + 1) * about.size)}`)));
  }
  $("pages").hidden = !about.pages.length;
  const good = rows.filter((row) => row.status === "ok").length, sure = rows.filter((row) => row.confidence >= 0.5).length;
  const words = [`${good} of ${rows.length} features with candidates`, `${sure} with a first candidate of 50 % confidence or more`];
  if (about.pages.length && !about.is_index) words.unshift(`Features ${about.first + 1} to ${about.first + rows.length} of ${about.total}`);
  $("summary").textContent = words.join(" · ");
  const counts = new Map();
  rows.forEach((row) => counts.set(row.status, (counts.get(row.status) || 0) + 1));
  $("counts").append(...[...counts].map(([status, count]) => el("tr", {}, el("th", {}, `features ${status.replaceAll("_", " ")}`), el("td", {}, String(count)))));
}
function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  try { next ? localStorage.setItem("duallgd-theme", next) : (document.documentElement.dataset.theme = localStorage.getItem("duallgd-theme") || "auto"); } catch { /* no storage: the system decides */ }
}
async function printAll() {
  more(state.shown.length);
  const nodes = [];
  for (const { number } of about.is_index ? [] : state.shown) nodes.push(whole(await feature(number)));
  $("printed").replaceChildren(...nodes);
  $("printed").classList.add("ready");
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  print();
}
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape") { hint(null); if (typing) typing.blur(); return; }
  if (typing || event.target.closest(".spectrum")) return;
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  const row = byNumber.get(state.open), opens = { ArrowRight: true, ArrowLeft: false }[event.key];
  if (opens !== undefined && row?.ions?.length && event.target.closest("#overview, body") && !event.target.closest("#detail")) fold(row, opens);
  else if (event.key === "Enter" && about.is_index && state.open >= 0 && !event.target.closest("a, button")) leave(state.open);
  else if (step && (event.key.length === 1 || event.target.closest("#overview") || event.target === document.body)) walk(step);
  else if (event.key === "/") $("text").focus();
  else return;
  event.preventDefault();
}

theme();
tableHead();
tableBody();
summary();
filter();
$("filters").addEventListener("input", filter);
$("filters").addEventListener("reset", () => setTimeout(filter));
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("theme").addEventListener("click", () => theme(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "light" : "dark"));
$("print").addEventListener("click", printAll);
$("export").addEventListener("click", exported);
document.querySelectorAll(".timed").forEach((node) => { node.hidden = !rows.some((row) => row.rt != null); });
document.querySelectorAll(".strong").forEach((node) => { node.hidden = !rows.some((row) => row.intensity != null); });
document.addEventListener("keydown", keys);
const asked = /^#feature=(\d+)$/.exec(location.hash);
const wanted = asked ? Number(asked[1]) - 1 : rows.find((row) => row.smiles)?.number ?? about.first;
document.body.classList.toggle("index", about.is_index);
if (asked && about.is_index && wanted < about.total) leave(wanted);
else if (!about.is_index) open(wanted, true);
