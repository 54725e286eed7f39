"""A made run of liquid chromatography and data-dependent MS/MS, of which the truth is known.

Compounds elute as Gaussian peaks with a tail, have isotopes, and are chosen by intensity with
dynamic exclusion; noise is in every scan. Nothing was measured.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.formula import Formula
from tests import made_xml
from tests.made_spectra import ion_mz
from tests.made_xml import cv, precursors

ISOTOPE_DA = 1.00336
THRESHOLD = 1000.0  # what the detector does not show


@dataclass(frozen=True)
class Compound:
    """What elutes: its ion, when, and its fragments as (m/z, relative intensity)."""

    name: str
    mz: float
    rt: float
    height: float = 1e6
    sigma: float = 4.0
    fragments: tuple = ()
    charge: int = 1

    def at(self, time):
        """Intensity at a time; the peak has a tail."""
        width = self.sigma * (1.0 if time < self.rt else 1.3)
        return self.height * np.exp(-0.5 * ((time - self.rt) / width) ** 2)

    def isotopes(self):
        """m/z and relative intensity of the three lightest isotopologues."""
        first = 0.0108 * self.mz * self.charge / 14
        step = ISOTOPE_DA / self.charge
        return ((self.mz, 1.0), (self.mz + step, first), (self.mz + 2 * step, first**2 / 2 + 0.004))


@dataclass
class Scan:
    """One scan; `truth` is the name of the compound whose ion was chosen, "" for noise."""

    level: int
    time: float
    mz: np.ndarray
    intensity: np.ndarray
    precursor_mz: float = 0.0
    precursor_intensity: float = 0.0
    energy: float = 0.0
    width: float = 1.0
    truth: str = ""
    parent: int = 0
    polarity: int = 1


@dataclass
class Run:
    """Scans in the order of their times, and what eluted."""

    compounds: tuple
    scans: list = field(default_factory=list)

    def truth(self):
        """What each MS2 scan is of, by its index: a compound, its isotope (``a+``), or "" noise."""
        return {n: scan.truth for n, scan in enumerate(self.scans) if scan.level == 2}

    def judged(self, features):
        """Compounds that were chosen, how many of them are one feature, and which share theirs."""
        truth, spread = self.truth(), {}
        for number, feature in enumerate(features):
            for scan in (m for one in feature.spectra for m in one.merged or (one,)):
                spread.setdefault(truth[scan.source.index], Counter())[number] += 1
        spread = {name: own for name, own in spread.items() if name and name[-1] != "+"}
        mains = Counter(own.most_common(1)[0][0] for own in spread.values())
        shared = [n for n, own in spread.items() if mains[own.most_common(1)[0][0]] > 1]
        return len(spread), sum(len(own) == 1 for own in spread.values()), shared


def random_compounds(rng, count, length_s, fragments=12):
    """Compounds of random m/z and retention time, two of them never alike."""
    made = []
    while len(made) < count:
        mz, rt = float(rng.uniform(120, 700)), float(rng.uniform(15, length_s - 15))
        if any(abs(one.mz - mz) < 0.1 and abs(one.rt - rt) < 60 for one in made):
            continue
        height = float(10 ** rng.uniform(5, 7))
        made.append(compound(rng, f"c{len(made)}", mz, rt, height, fragments))
    return made


def compound(rng, name, mz, rt, height=1e6, fragments=12, sigma=None):
    """A compound with random fragments."""
    at = np.sort(rng.uniform(50, mz - 1, fragments))
    heights = rng.lognormal(0, 1, fragments)
    pairs = tuple(zip(at.tolist(), (heights / heights.max()).tolist(), strict=True))
    return Compound(name, mz, rt, height, sigma or float(rng.uniform(2.5, 5)), pairs)


def ions_of(rng, name, mass, rt, heights, sigma=None):
    """Ions of one molecule as compounds ``NAME/[M+H]+``, which elute alike; heights by adduct."""
    sigma = sigma or float(rng.uniform(2.5, 5))
    for adduct, height in heights.items():
        ion = parse_adduct(adduct)
        mz = (mass * ion.molecules + ion.mass_shift) / abs(ion.charge)
        made = compound(rng, f"{name}/{adduct}", mz, rt, height, sigma=sigma)
        yield replace(made, charge=abs(ion.charge))


def together(positive, negative):
    """One run of two of both polarities, scans in the order of their times."""
    negative = [replace(one, polarity=-1) for one in negative.scans]
    scans = sorted([*positive.scans, *negative], key=lambda one: one.time)
    return Run((), scans)


def of_molecule(molecule, name, rt, height=1e6):
    """A compound of `made_spectra`, whose fragments have formulas."""
    formula, fragments = molecule
    ion = precursor_mz(Formula.parse(formula), parse_adduct("[M+H]+"))
    pairs = tuple((ion_mz(one), 1 / (1 + place)) for place, one in enumerate(fragments.split()))
    return Compound(name, ion, rt, height, 4.0, pairs)


def measure(
    rng, compounds, length_s=300.0, *, cycle_s=1.2, top=4, exclusion_s=6.0,
    energies=(20.0, 40.0, 60.0), ppm=1.5, noise=60, width=1.0, repeat=False,
):  # fmt: skip
    """Scans of compounds as an instrument takes them that chooses the `top` strongest ions.

    An ion is not chosen again for `exclusion_s` (0 repeats it in each cycle); energies come in
    turn, with `repeat` all at once. An MS1 scan has so many peaks of noise, an MS2 scan a sixth.
    """
    run, excluded, turn = Run(tuple(compounds)), [], {}
    scattered = lambda mz: mz * (1 + rng.normal(0, ppm * 1e-6, np.shape(mz)))  # noqa: E731
    for start in np.arange(0, length_s, cycle_s):
        present = [
            (mz, share * one.at(start), one if place == 0 else None, one)
            for one in compounds
            for place, (mz, share) in enumerate(one.isotopes())
            if share * one.at(start) > THRESHOLD
        ]
        present = _resolved(present)
        mz = scattered(np.array([entry[0] for entry in present]))
        height = np.array([entry[1] for entry in present]) * rng.normal(1, 0.08, len(present))
        mz = np.concatenate([mz, rng.uniform(100, 900, noise)])
        height = np.concatenate([height, THRESHOLD * rng.uniform(1, 2.5, noise)])
        order = np.argsort(mz)
        parent = len(run.scans)
        run.scans.append(Scan(1, float(start), mz[order], height[order]))
        excluded = [(at, until) for at, until in excluded if until > start]
        chosen = 0
        for place in np.argsort(-height):
            if chosen == top or height[place] < 3 * THRESHOLD:
                break
            if any(abs(at - mz[place]) < 0.003 for at, _ in excluded):
                continue
            chosen += 1
            entry = present[place] if place < len(present) else None
            truth = "" if entry is None else entry[2].name if entry[2] else f"{entry[3].name}+"
            if exclusion_s:
                excluded.append((mz[place], start + exclusion_s))
            key = round(float(mz[place]), 2)
            turn[key] = turn.get(key, -1) + 1
            for energy in energies if repeat else energies[turn[key] % len(energies) :][:1]:
                time = start + cycle_s * (len(run.scans) - parent) / (top * len(energies) + 1)
                ms2 = _fragments(rng, compounds, time, mz[place], width, energy, noise // 6)
                run.scans.append(
                    Scan(
                        2, float(time), *ms2, float(mz[place]), float(height[place]), energy,
                        width, truth, parent,
                    )
                )  # fmt: skip
    return run


def long_run(rng, n_scans, ions=400):
    """A run of as many scans as one likes, without elution: an MS1 scan, four of its ions, ..."""
    mz, run = np.sort(rng.uniform(120, 700, ions)), Run(())
    for number in range(n_scans):
        if number % 5 == 0:
            at = mz * (1 + rng.normal(0, 1e-6, ions))
            run.scans.append(Scan(1, 0.1 * number, at, rng.uniform(1e3, 1e6, ions)))
        else:
            ion = mz[(number // 5 + number * ions // 5) % ions]
            at, height = np.sort(rng.uniform(50, ion, 20)), rng.uniform(1e3, 1e5, 20)
            run.scans.append(Scan(2, 0.1 * number, at, height, ion, 1e5, 20.0))
    return run


def _resolved(present):
    """Ions as a detector of resolution 40,000 shows them: what is closer is the stronger one."""
    shown = []
    for mz, height, whole, of in sorted(present, key=lambda entry: entry[0]):
        if shown and mz - shown[-1][0] < mz / 40_000:
            at, before, *names = shown.pop()
            both = before + height
            stronger = names if before >= height else [whole, of]
            shown.append(((at * before + mz * height) / both, both, *stronger))
        else:
            shown.append((mz, height, whole, of))
    return shown


def _fragments(rng, compounds, time, mz, width, energy, noise):
    """Peaks of an MS2 scan: of all ions in the window, and noise."""
    at, height = [rng.uniform(50, max(mz, 60), noise)], [THRESHOLD / 10 * rng.uniform(1, 3, noise)]
    for one in compounds:
        inside = sum(share for ion, share in one.isotopes() if abs(ion - mz) <= width / 2)
        whole = one.at(time) * inside
        if whole < THRESHOLD or not one.fragments:
            continue
        masses, shares = np.array(one.fragments).T
        # The lighter a fragment is, the more of it a higher energy makes.
        shares = shares * np.exp(-np.abs(masses / one.mz - 1 + energy / 80) * 2)
        at.append(np.append(masses, one.mz) * (1 + rng.normal(0, 1.5e-6, masses.size + 1)))
        left = np.exp(-energy / 15)
        height.append(np.append(shares, left) * whole / 3 * rng.normal(1, 0.1, masses.size + 1))
    at, height = np.concatenate(at), np.concatenate(height)
    seen = height > THRESHOLD / 10
    order = np.argsort(at[seen])
    return at[seen][order], height[seen][order]


def mzml(run, path, polarity=1, order=None):
    """Write a run as mzML; `order` is that of its scans in the file."""
    instrument = made_xml.instrument(cv("MS:1001911", "Q Exactive"))
    with path.open("w", encoding="utf-8") as file:
        file.write(
            f'{made_xml.MZML}{instrument}<run id="r" defaultInstrumentConfigurationRef="IC1">'
            f'<spectrumList count="{len(run.scans)}">'
        )
        for place, n in enumerate(range(len(run.scans)) if order is None else order):
            file.write(_mzml_scan(run.scans[n], place, n + 1, polarity))
        file.write("</spectrumList></run></mzML>\n")
    return str(path)


def _mzml_scan(scan, place, number, polarity):
    signs = {1: ("MS:1000130", "positive scan"), -1: ("MS:1000129", "negative scan")}
    terms = cv("MS:1000511", "ms level", scan.level) + cv(*signs[scan.polarity * polarity])
    time = cv("MS:1000016", "scan start time", f"{scan.time:.4f}", "UO:0000010|second")
    precursor = ""
    if scan.level == 2:
        mz, half = f"{scan.precursor_mz:.5f}", f"{scan.width / 2:g}"
        energy = cv("MS:1000045", "collision energy", scan.energy)
        height = cv("MS:1000042", "peak intensity", f"{scan.precursor_intensity:.1f}")
        precursor = precursors(made_xml.windowed(mz, half, half, [mz], energy, height))
    terms += cv("MS:1000127", "centroid spectrum")
    own = made_xml.arrays(scan.mz, scan.intensity)
    return made_xml.spectrum(number, own, terms, time, precursor, place=place)


def mzxml(run, path):
    """Write a run as mzXML."""
    lines = []
    for number, scan in enumerate(run.scans, start=1):
        energy = f' collisionEnergy="{scan.energy:g}"' if scan.level == 2 else ""
        ion = (
            f'<precursorMz precursorIntensity="{scan.precursor_intensity:.1f}" windowWideness="'
            f'{scan.width:g}" precursorScanNum="{scan.parent + 1}">{scan.precursor_mz:.5f}'
            "</precursorMz>"
        )
        pairs = zip(scan.mz.tolist(), scan.intensity.tolist(), strict=True)
        lines.append(
            f'<scan num="{number}" msLevel="{scan.level}" peaksCount="{scan.mz.size}" '
            f'polarity="+" centroided="1" retentionTime="PT{scan.time:.4f}S"{energy}>'
            f"{ion if scan.level == 2 else ''}{made_xml.peaks_of_mzxml(pairs)}</scan>"
        )
    analyser = '<msMassAnalyzer category="msMassAnalyzer" value="Orbitrap"/>'
    path.write_text(made_xml.mzxml("\n".join(lines), analyser), encoding="utf-8")
    return str(path)


def mgf_of_run(run, path):
    """Write the MS2 scans of a run as MGF, as msconvert does."""
    with path.open("w", encoding="utf-8") as file:
        for n, scan in enumerate(run.scans, start=1):
            if scan.level == 2:
                pairs = zip(scan.mz, scan.intensity, strict=True)
                peaks = "".join(f"{mz:.5f} {height:.2f}\n" for mz, height in pairs)
                file.write(
                    f"BEGIN IONS\nTITLE=run.{n}.{n}.1\nRTINSECONDS={scan.time:.4f}\n"
                    f"PEPMASS={scan.precursor_mz:.5f} {scan.precursor_intensity:.1f}\nCHARGE=1+\n"
                    f"COLLISION_ENERGY={scan.energy:g}\n{peaks}END IONS\n"
                )
    return str(path)
