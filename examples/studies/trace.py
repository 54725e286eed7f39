"""How structures come about for one spectrum: from random bonds to molecules, as one HTML page.

    python examples/studies/trace.py examples/spectra.mgf --spectrum 1 -o trace.html

All candidates start from random bonds here; those of ``duallgd predict`` start from known molecules
in part. The page opens at the start; its slider and its button lead to the finished molecules.
S candidates, N heavy atoms, M = N (N - 1) / 2 pairs, C bond classes.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, NamedTuple

import command
import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdDepictor, rdFingerprintGenerator
from rdkit.Chem.Draw import rdMolDraw2D
from torch import Tensor

from duallgd_cli.chem import parts
from duallgd_cli.chem.adduct import parent_formula
from duallgd_cli.chem.elements import ATOMIC_NUMBERS, FINGERPRINT_BITS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import FINGERPRINT_RADIUS, canonical_smiles
from duallgd_cli.chem.molecule import assemble
from duallgd_cli.chem.repair import repair
from duallgd_cli.chem.valence import bonds_of, pairs
from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler, on_one_thread, sample
from duallgd_cli.errors import Failure, UsageError, clip, printable, quote
from duallgd_cli.files import claim, write_atomically
from duallgd_cli.predict import api
from duallgd_cli.spectra.annotation import annotate
from duallgd_cli.spectra.cleaning import CleaningSettings, clean, resolved
from duallgd_cli.spectra.features import Inputs
from duallgd_cli.spectra.formulas import from_field, from_text
from duallgd_cli.spectra.types import AnnotatedSpectrum, Feature

WIDTH, HEIGHT = 360, 280
LEAST_SHOWN = 0.06  # bonds less probable are not drawn
WIDEST = 6.0
LINES = (0, 1, 2, 3, 2)  # of each bond class; aromatic bonds have two
MOST_LABELS = 8
MOST_SUBSTRUCTURES = 12
COLOURS = {"N": "#2348c7", "O": "#c8201a", "S": "#8a6d00", "P": "#b45309"}
STYLE = """
body { font: 16px system-ui, sans-serif; color: #1c2329; background: #f6f7f8; margin: 1.2rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; } p, figcaption { max-width: 60rem; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; } input { width: min(40rem, 60vw); }
figure, section { background: #fff; border: 1px solid #dde1e5; border-radius: 10px; margin: 0;
  padding: .8rem; } figure { width: 360px; } figcaption { font-size: .85rem; }
svg { display: block; } svg text { font: 12px sans-serif; text-anchor: middle;
  dominant-baseline: central; } .frame { display: none; } .frame.on { display: block; }
.expected { stroke: #1f62b5; stroke-linecap: round; } .drawn { stroke: #b4bac0;
  stroke-dasharray: 3 3; } .peak { stroke: #b4bac0; stroke-width: 1.5; }
.explained { stroke: #1f62b5; } .spectrum text { font-size: 10px; }
td, th { text-align: left; padding: .1rem .8rem .1rem 0; font-size: .85rem; }
code { overflow-wrap: anywhere; }
"""
SCRIPT = """
const words = JSON.parse(document.getElementById("words").textContent);
const slider = document.getElementById("step"), button = document.getElementById("play");
let playing = null;
function show(step) {
  slider.value = String(step);
  document.getElementById("where").textContent = words[step];
  for (const frame of document.querySelectorAll(".frame"))
    frame.classList.toggle("on", Number(frame.dataset.step) === step);
}
function stop() { clearInterval(playing); playing = null; button.textContent = "Play"; }
button.addEventListener("click", () => {
  if (playing !== null) return stop();
  if (Number(slider.value) === words.length - 1) show(0);
  button.textContent = "Stop";
  playing = setInterval(() => {
    show(Number(slider.value) + 1);
    if (Number(slider.value) === words.length - 1) stop();
  }, Math.max(150, 6000 / words.length));
});
slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
show(0);
"""


class Step(NamedTuple):
    """All candidates at one step."""

    noise: float  # proportion of the bonds that are still random
    bond_class: NDArray[np.int64]  # the bonds there, (S, M)
    bond_prob: NDArray[np.float32]  # what the network expects of the finished bonds, (S, M, C)


class Ending(NamedTuple):
    """What a candidate became."""

    mol: Chem.Mol | None  # its atoms in the order of the bonds; None where these are no molecule
    words: str  # what it is, for the caption
    at: NDArray[np.float64]  # where its atoms are drawn, (N, 2)
    drawing: str  # clean, as SVG elements


def chosen(spectra: str, which: str, formula: str | None) -> AnnotatedSpectrum:
    """The feature of a number, from 1, or of an id, its peaks explained by its formula.

    Raises:
        UsageError: There is none, or its formula is unknown or does not fit.
    """
    with Inputs((spectra,)) as inputs:
        for number, feature in enumerate(inputs.features("auto"), 1):
            names = {n for s in feature.spectra for n in (s.spectrum_id, s.feature_id, s.scans)}
            if str(number) != which and (which.isdecimal() or which not in names):
                continue
            cleaned = [resolved(clean(s, CleaningSettings())) for s in feature.spectra]
            usable = tuple(spectrum for spectrum in cleaned if spectrum.failure is None)
            if not usable:
                raise UsageError(f"spectrum {quote(which)}: {cleaned[0].failure.message}")
            peaks = Feature(usable)
            hypotheses = from_text(peaks, formula) if formula else from_field(peaks)
            if isinstance(hypotheses, Failure):
                raise UsageError(f"spectrum {quote(which)}: {hypotheses.message}")
            return annotate(hypotheses[0])
    raise UsageError(f"{spectra} has no spectrum {quote(which)}; give its number, from 1, or an id")


@torch.inference_mode()
def drawn(
    sampler: Sampler,
    fingerprint: NDArray[np.float32],
    formula: Formula,
    settings: SamplingSettings,
    seed: int,
) -> tuple[list[Step], NDArray[np.float32]]:
    """Draw candidates from random bonds and record each step.

    Returns:
        The steps, the last one finished; log-probabilities of the bonds, float32 (S, M, C).
    """
    steps = list[Step]()
    n_pairs = formula.n_heavy * (formula.n_heavy - 1) // 2
    task = sampler.task(settings, seed, settings.samples, n_pairs)
    context = sampler.context(formula, torch.from_numpy(fingerprint))
    with on_one_thread():
        logits_of = sampler.denoiser(context, settings.samples)

        def denoise(bond: Tensor, t: int) -> Tensor:
            logits = logits_of(bond, t)
            noise = 1 - float(task.alpha_bar[task.plan[len(steps)]])
            prob = torch.softmax(logits.float(), -1).cpu().numpy()
            steps.append(Step(noise, bond.cpu().numpy(), prob))
            return logits

        samples = sample(denoise, task, slice(0, settings.samples)).cpu()
    final, log_prob = samples.bond_class.numpy(), samples.bond_log_prob.numpy()
    steps.append(Step(0.0, final, np.eye(log_prob.shape[-1], dtype=np.float32)[final]))
    return steps, log_prob


def ending(
    formula: Formula, bond_class: NDArray[np.int64], log_prob: NDArray[np.float32]
) -> Ending:
    """The molecule of the drawn bonds, after the smallest repair where they are none."""
    mol, after = assemble(formula, bond_class), ""
    if isinstance(mol, str):
        mended = repair(formula, bond_class, log_prob)
        if mended is not None:
            mol, after = assemble(formula, mended), ", after repair of single bonds"
    if isinstance(mol, str):
        at = places(formula.atom_class, bond_class) * (1, -1)
        first, last = at.min(0), at.max(0)
        room = (np.array([WIDTH, HEIGHT]) - 40) / np.maximum(last - first, 1e-6)
        at = (at - (first + last) / 2) * min(30.0, float(room.min())) + (WIDTH / 2, HEIGHT / 2)
        return Ending(None, f"no molecule: {mol}", at, "")
    rdDepictor.Compute2DCoords(mol)
    canvas = rdMolDraw2D.MolDraw2DSVG(WIDTH, HEIGHT)
    options = canvas.drawOptions()
    options.fixedBondLength, options.clearBackground = 30, False
    canvas.DrawMolecule(mol)
    at = np.array([[p.x, p.y] for p in map(canvas.GetDrawCoords, range(mol.GetNumAtoms()))])
    canvas.FinishDrawing()
    inside = canvas.GetDrawingText().partition("<!-- END OF HEADER -->")[2]
    smiles = canonical_smiles(mol)
    # A ring system without a name is a SMILES, which the caption gives already.
    found = parts.find([smiles])[0]
    named = [p.name for p in found if not (p.kind == parts.RING_SYSTEM and "1" in p.name)]
    holds = f"; contains {', '.join(named)}" if named else ""
    return Ending(mol, f"{smiles}{after}{holds}", at, inside.replace("</svg>", ""))


def places(atom_class: NDArray[np.integer], bond_class: NDArray[np.integer]) -> NDArray[np.float64]:
    """Places of N atoms with bonds among their M pairs, float64 (N, 2), bonds about 1.5 long."""
    bare = Chem.RWMol()
    for element in atom_class.tolist():
        atom = Chem.Atom(ATOMIC_NUMBERS[element])
        atom.SetNoImplicit(True)
        bare.AddAtom(atom)
    for low, high, _ in bonds_of(len(atom_class), bond_class):
        bare.AddBond(low, high, Chem.BondType.SINGLE)
    Chem.FastFindRings(bare)
    rdDepictor.Compute2DCoords(bare)
    drawn: NDArray[np.float64] = bare.GetConformer().GetPositions()[:, :2]
    return drawn


def frame(
    step: Step, candidate: int, at: NDArray[np.float64], elements: Sequence[str]
) -> Iterator[str]:
    """The bonds of a candidate at a step, drawn and expected, and its atoms."""
    low, high = pairs(len(at))
    ends = 'x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"'
    for pair in np.flatnonzero(step.bond_class[candidate]):
        yield f'<line class="drawn" {ends.format(*at[low[pair]], *at[high[pair]])}/>'
    bonded = 1 - step.bond_prob[candidate][:, 0]
    order = step.bond_prob[candidate][:, 1:].argmax(-1) + 1
    for pair in np.flatnonzero(bonded >= LEAST_SHOWN):
        start, end = at[low[pair]], at[high[pair]]
        across = np.array([start[1] - end[1], end[0] - start[0]])
        across = across / max(1e-6, float(np.hypot(*across)))
        count, certain = LINES[order[pair]], float(bonded[pair])
        width = certain * WIDEST / (2 * count - 1)
        for line in range(count):
            aside = across * (line - (count - 1) / 2) * (width + 2)
            look = f'stroke-width="{width:.1f}" stroke-opacity="{certain:.2f}"'
            where = ends.format(*(start + aside), *(end + aside))
            yield f'<line class="expected" {where} {look}/>'
    for symbol, (x, y) in zip(elements, at.tolist(), strict=True):
        if symbol == "C":
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
            continue
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="#fff"/>'
        ink = COLOURS.get(symbol, "#1b7f3b")
        yield f'<text x="{x:.1f}" y="{y:.1f}" fill="{ink}">{symbol}</text>'


def spectrum(annotated: AnnotatedSpectrum) -> Iterator[str]:
    """The peaks; the strongest explained ones say which fragment and neutral loss they are."""
    hypothesis = annotated.hypothesis
    feature = hypothesis.feature
    ion = parent_formula(hypothesis.formula, hypothesis.adduct).array
    best: dict[float, tuple[float, str]] = {}
    for mz, intensity, counts in zip(
        annotated.mz.tolist(), annotated.intensity, annotated.subformula, strict=True
    ):
        lost = ion - counts
        name = str(Formula(tuple(counts.tolist())))
        if (lost >= 0).all() and lost.any():
            name += f", loss of {Formula(tuple(lost.tolist()))}"
        best.setdefault(round(mz, 3), (float(intensity), name))
    labelled = sorted(best, key=lambda mz: -best[mz][0])[:MOST_LABELS]
    last = 1.05 * max(float(one.mz.max()) for one in feature.spectra)
    for measured in sorted(feature.spectra, key=lambda one: -float(one.intensity.sum())):
        for mz, intensity in zip(measured.mz.tolist(), measured.intensity.tolist(), strict=True):
            x, top, key = mz / last * 760, 200 - 150 * intensity, round(float(np.float32(mz)), 3)
            kind = "peak explained" if key in best else "peak"
            words = f"m/z {mz:.4f}" + (f": {best[key][1]}" if key in best else "")
            yield f'<line class="{kind}" x1="{x:.1f}" y1="200" x2="{x:.1f}" y2="{top:.1f}">'
            yield f"<title>{escape(words)}</title></line>"
            if key in labelled:
                labelled.remove(key)  # a feature may have the peak in several spectra
                text = best[key][1].partition(",")[0]
                yield f'<text x="{x:.1f}" y="{top - 9:.1f}">{escape(text)}</text>'


def substructures(endings: Sequence[Ending], fingerprint: NDArray[np.float32]) -> Iterator[str]:
    """Rows of a table: what surrounds an atom, how probable that is, which candidates have it."""
    morgan = rdFingerprintGenerator.GetMorganGenerator(
        radius=FINGERPRINT_RADIUS, fpSize=FINGERPRINT_BITS
    )
    names: dict[int, str] = {}
    holders: dict[int, list[int]] = {}
    for number, end in enumerate(endings, 1):
        if end.mol is None:
            continue
        seen = rdFingerprintGenerator.AdditionalOutput()
        seen.AllocateBitInfoMap()
        morgan.GetFingerprint(end.mol, additionalOutput=seen)
        for bit, ((atom, radius), *_) in seen.GetBitInfoMap().items():
            bonds = Chem.FindAtomEnvironmentOfRadiusN(end.mol, radius, atom)
            found = [end.mol.GetBondWithIdx(bond) for bond in bonds]
            atoms = {atom, *(a for b in found for a in (b.GetBeginAtomIdx(), b.GetEndAtomIdx()))}
            names[bit] = Chem.MolFragmentToSmiles(end.mol, list(atoms), list(bonds))
            holders.setdefault(bit, []).append(number)
    large = [bit for bit in names if len(names[bit]) > 2 and bit < len(fingerprint)]
    for bit in sorted(large, key=lambda bit: -fingerprint[bit])[:MOST_SUBSTRUCTURES]:
        which = ", ".join(map(str, holders[bit]))
        yield f"<tr><td><code>{escape(names[bit])}</code></td><td>{fingerprint[bit]:.0%}</td>"
        yield f"<td>{which}</td></tr>"


def page(
    annotated: AnnotatedSpectrum,
    steps: Sequence[Step],
    endings: Sequence[Ending],
    fingerprint: NDArray[np.float32],
) -> Iterator[str]:
    """The page in pieces."""
    hypothesis = annotated.hypothesis
    first, formula = hypothesis.feature.first, hypothesis.formula
    title = clip(printable(first.feature_id or first.spectrum_id))
    mz = "" if first.precursor_mz is None else f", m/z {first.precursor_mz:.4f}"
    heading = f"{formula}, {hypothesis.adduct.name}{mz} (feature {title})"
    words = [f"Step {n} of {len(steps) - 1}: {one.noise:.0%} noise" for n, one in enumerate(steps)]
    words[0] = f"Start: random bonds between the atoms of {formula}"
    words[-1] = "Finished: each candidate as a molecule"
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    yield f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(heading)}</title><style>{STYLE}</style></head><body>
<h1>How structures of {escape(heading)} come about</h1>
<p><button id="play">Play</button> <input id="step" type="range" min="0" max="{len(steps) - 1}"
value="0" aria-label="Step"> <output id="where">{escape(words[0])}</output></p><div class="row">
"""
    elements = [SYMBOLS[atom] for atom in formula.atom_class]
    for number, end in enumerate(endings):
        yield f'<figure><svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="Candidate">'
        for at_step, step in enumerate(steps):
            on = " on" if at_step == 0 else ""
            yield f'<g class="frame{on}" data-step="{at_step}">'
            is_drawn = at_step == len(steps) - 1 and end.mol is not None
            yield end.drawing if is_drawn else "".join(frame(step, number, end.at, elements))
            yield "</g>"
        yield f"</svg><figcaption><b>Candidate {number + 1}</b>: {escape(end.words)}</figcaption>"
        yield "</figure>"
    yield """</div><p>Blue lines are the bonds that the network expects, as wide as they are
probable; dashed ones are the random bonds it is given at this step. Atoms stand where the finished
molecule has them; dots are carbon atoms.</p><section><h2>Spectrum: blue peaks are fragments of the
formula</h2><svg class="spectrum" width="780" height="210" role="img" aria-label="Spectrum">"""
    yield from spectrum(annotated)
    yield """</svg></section><section><h2>Substructures of the candidates, and
how probable the network holds them by the spectrum</h2><table><tr><th>Atom and what is around
it</th><th>Probability</th><th>In candidate</th></tr>"""
    yield from substructures(endings, fingerprint)
    texts = json.dumps(words).replace("<", "\\u003c")
    yield f"""</table></section><script type="application/json" id="words">{texts}</script>
<script>{SCRIPT}</script></body></html>
"""


def trace(
    spectra: Annotated[str, typer.Argument(help="File of spectra.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")],
    spectrum: Annotated[str, typer.Option(help="Number of the feature, from 1, or an id.")] = "1",
    formula: Annotated[str | None, typer.Option(help="Formula, if the file has none.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=12, help="Candidates, side by side.")] = 3,
    steps: Annotated[int, typer.Option(min=1, max=500, help="Steps of each.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the random bonds.")] = 0,
    weights: Annotated[str | None, typer.Option(help="Weights file or name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a page that shows how the structures of one spectrum come about."""
    claim({"the output": output}, [spectra], force=force)
    model, settings = api.load(weights), SamplingSettings(samples=samples, steps=steps)
    if model.sampler is None:
        raise UsageError(f"weights {model.name} cannot be followed; take weights of duallgd")
    annotated = chosen(spectra, spectrum, formula)
    fingerprint, _ = model.encode(annotated)
    atoms = annotated.hypothesis.formula
    recorded, log_prob = drawn(model.sampler, fingerprint, atoms, settings, seed)
    bonds = zip(recorded[-1].bond_class, log_prob, strict=True)
    endings = [ending(atoms, *graph) for graph in bonds]
    write_atomically(output, page(annotated, recorded, endings, fingerprint))
    command.say(f"-> {output}; open it in a browser")


if __name__ == "__main__":
    command.run(trace)
