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
CYCLE_S, ENERGIES, WIDTH = 1.2, (20.0, 40.0, 60.0), 1.0


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


def measure(rng, compounds, length_s=300.0, *, top=4, exclusion_s=6.0, noise=60, repeat=False):
    """Scans of compounds as an instrument takes them that chooses the `top` strongest ions.

    An ion is not chosen again for `exclusion_s` (0 repeats it in each cycle); energies come in
    turn, with `repeat` all at once. An MS1 scan has so many peaks of noise, an MS2 scan a sixth.
    """
    run, excluded, turn = Run(tuple(compounds)), [], Counter()
    for start in np.arange(0, length_s, CYCLE_S):
        present = _resolved(
            (mz, share * one.at(start), f"{one.name}{'+' if place else ''}")
            for one in compounds
            for place, (mz, share) in enumerate(one.isotopes())
            if share * one.at(start) > THRESHOLD
        )
        names = [name for *_, name in present] + noise * [""]
        mz = np.array([entry[0] for entry in present])
        mz = mz * (1 + rng.normal(0, 1.5e-6, mz.shape))
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
            if exclusion_s:
                excluded.append((mz[place], start + exclusion_s))
            key = round(float(mz[place]), 2)
            for energy in ENERGIES if repeat else [ENERGIES[turn[key] % len(ENERGIES)]]:
                time = start + CYCLE_S * (len(run.scans) - parent) / (top * len(ENERGIES) + 1)
                ms2 = _fragments(rng, compounds, time, mz[place], energy, noise // 6)
                of_ion = float(mz[place]), float(height[place]), energy, names[place], parent
                run.scans.append(Scan(2, float(time), *ms2, *of_ion))
            turn[key] += 1
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
    for mz, height, name in sorted(present, key=lambda entry: entry[0]):
        if shown and mz - shown[-1][0] < mz / 40_000:
            at, before, other = shown.pop()
            both = before + height
            stronger = other if before >= height else name
            shown.append(((at * before + mz * height) / both, both, stronger))
        else:
            shown.append((mz, height, name))
    return shown


def _fragments(rng, compounds, time, mz, energy, noise):
    """Peaks of an MS2 scan: of all ions in the window, and noise."""
    at, height = [rng.uniform(50, max(mz, 60), noise)], [THRESHOLD / 10 * rng.uniform(1, 3, noise)]
    for one in compounds:
        inside = sum(share for ion, share in one.isotopes() if abs(ion - mz) <= WIDTH / 2)
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


def mzml(run, path):
    """Write a run as mzML."""
    spectra = (_mzml_scan(scan, place) for place, scan in enumerate(run.scans))
    default = ' defaultInstrumentConfigurationRef="IC1"'
    text = made_xml.mzml(spectra, cv("MS:1001911", "Q Exactive"), run=default)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _mzml_scan(scan, place):
    signs = {1: ("MS:1000130", "positive scan"), -1: ("MS:1000129", "negative scan")}
    terms = cv("MS:1000511", "ms level", scan.level) + cv(*signs[scan.polarity])
    terms += cv("MS:1000127", "centroid spectrum")
    time = cv("MS:1000016", "scan start time", f"{scan.time:.4f}", "UO:0000010|second")
    precursor = ""
    if scan.level == 2:
        mz, half = f"{scan.precursor_mz:.5f}", f"{WIDTH / 2:g}"
        energy = cv("MS:1000045", "collision energy", scan.energy)
        height = cv("MS:1000042", "peak intensity", f"{scan.precursor_intensity:.1f}")
        precursor = precursors(made_xml.windowed(mz, half, half, [mz], energy, height))
    own = made_xml.arrays(scan.mz, scan.intensity)
    return made_xml.spectrum(place + 1, own, terms, time, precursor)


def mzxml(run, path):
    """Write a run as mzXML."""
    scans = []
    for number, scan in enumerate(run.scans, start=1):
        ion = energy = ""
        if scan.level == 2:
            energy = f' collisionEnergy="{scan.energy:g}"'
            ion = (
                f'<precursorMz precursorIntensity="{scan.precursor_intensity:.1f}" '
                f'windowWideness="{WIDTH:g}" precursorScanNum="{scan.parent + 1}">'
                f"{scan.precursor_mz:.5f}</precursorMz>"
            )
        pairs = zip(scan.mz.tolist(), scan.intensity.tolist(), strict=True)
        scans.append(
            f'<scan num="{number}" msLevel="{scan.level}" peaksCount="{scan.mz.size}" '
            f'polarity="+" centroided="1" retentionTime="PT{scan.time:.4f}S"{energy}>'
            f"{ion}{made_xml.peaks_of_mzxml(pairs)}</scan>"
        )
    analyser = '<msMassAnalyzer category="msMassAnalyzer" value="Orbitrap"/>'
    path.write_text(made_xml.mzxml(scans, analyser), encoding="utf-8")
    return str(path)


def mgf_of_run(run, path):
    """Write the MS2 scans of a run as MGF, as msconvert does."""
    blocks = (
        f"BEGIN IONS\nTITLE=run.{n}.{n}.1\nRTINSECONDS={scan.time:.4f}\n"
        f"PEPMASS={scan.precursor_mz:.5f} {scan.precursor_intensity:.1f}\nCHARGE=1+\n"
        f"COLLISION_ENERGY={scan.energy:g}\n"
        + "".join(
            f"{mz:.5f} {height:.2f}\n" for mz, height in zip(scan.mz, scan.intensity, strict=True)
        )
        + "END IONS\n"
        for n, scan in enumerate(run.scans, start=1)
        if scan.level == 2
    )
    path.write_text("".join(blocks), encoding="utf-8")
    return str(path)
