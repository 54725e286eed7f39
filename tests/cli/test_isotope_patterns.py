"""MS1 spectra of each format turn a wrong first formula into the right one; rows stay the same."""

import base64
import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.cli.app import app
from duallgd_cli.config import SamplingSettings
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from tests.made_spectra import (
    BROMINATED,
    CHLORINATED,
    block,
    mgf,
    ms1_block,
    ms1_lines,
    ms1_peaks,
)
from tests.stub_model import stub_model
from tests.unit.spectra.reading.test_xml_formats import PRECURSOR, mzml, scan

MOLECULES = [CHLORINATED, BROMINATED]
FORMULAS = [formula for formula, _ in MOLECULES]


def mz_of(molecule):
    return precursor_mz(Formula.parse(molecule[0]), parse_adduct("[M+H]+"))


def fragments(molecule):
    return [(Formula.parse(text).atoms_mass - ELECTRON_MASS_DA, 100.0)
            for text in molecule[1].split()]  # fmt: skip


def as_mgf(folder, *, with_ms1):
    """Feature by feature as mzmine exports them for SIRIUS, the MS1 spectrum first."""
    blocks = []
    for number, molecule in enumerate(MOLECULES):
        blocks += [ms1_block(molecule, feature_id=number)] if with_ms1 else []
        blocks += [block(molecule, formula=None, feature_id=number)]
    return mgf(folder / "made.mgf", *blocks)


def as_mgf_without_ids(folder, *, with_ms1):
    blocks = []
    for molecule in MOLECULES:
        blocks += [ms1_block(molecule)] if with_ms1 else []
        blocks += [block(molecule, formula=None)]
    return mgf(folder / "made.mgf", *blocks)


def as_ms(folder, *, with_ms1, mark=">ms1"):
    text = ""
    for number, molecule in enumerate(MOLECULES):
        text += f">compound made{number}\n>parentmass {mz_of(molecule):.5f}\n>ionization [M+H]+\n"
        text += "\n>ms2\n" + "".join(f"{mz:.5f} {h}\n" for mz, h in fragments(molecule))
        text += f"\n{mark}\n{ms1_lines(molecule)}\n\n" if with_ms1 else ""
    path = folder / "made.ms"
    path.write_text(text)
    return str(path)


def as_merged_ms(folder, *, with_ms1):
    return as_ms(folder, with_ms1=with_ms1, mark=">ms1merged")


def as_mat(folder, *, with_ms1):
    """MS-FINDER: the MS1 and the MS2 spectrum of a compound under one head."""
    text = ""
    for number, molecule in enumerate(MOLECULES):
        head = f"PRECURSORMZ: {mz_of(molecule):.5f}\nPRECURSORTYPE: [M+H]+\n"
        text += f"NAME: made{number}\n{head}"
        lines = ms1_lines(molecule)
        text += f"MSTYPE: MS1\nNum Peaks: {len(lines.splitlines())}\n{lines}\n" * with_ms1
        peaks = "".join(f"{mz:.5f} {h}\n" for mz, h in fragments(molecule))
        text += f"MSTYPE: MS2\nNum Peaks: {len(fragments(molecule))}\n{peaks}\n"
    path = folder / "made.mat"
    path.write_text(text)
    return str(path)


def as_mzml(folder, *, with_ms1):
    """A run: an MS1 scan of both, then an MS2 scan of each."""
    both = sorted(peak for molecule in MOLECULES for peak in ms1_peaks(molecule[0]))
    scans = [scan(1, level=1, mz=[mz for mz, _ in both], intensity=[h for _, h in both])]
    for number, molecule in enumerate(MOLECULES, start=2):
        ion = PRECURSOR.replace("181.0495", f"{mz_of(molecule):.5f}")
        mz, height = zip(*sorted(fragments(molecule)), strict=True)
        scans.append(scan(number, mz=list(mz), intensity=list(height), precursor=ion))
    path = folder / "made.mzML"
    path.write_text(mzml(scans if with_ms1 else scans[1:]))
    return str(path)


def mzxml_scan(number, level, peaks, ion="", inner=""):
    values = np.array(sorted(peaks)).reshape(-1).astype(">f8").tobytes()
    return (
        f'<scan num="{number}" msLevel="{level}" peaksCount="{len(peaks)}" polarity="+" '
        f'centroided="1">{ion}<peaks precision="64" byteOrder="network" contentType="m/z-int" '
        f'compressionType="none">{base64.b64encode(values).decode()}</peaks>{inner}</scan>'
    )


def mzxml(path, scans):
    path.write_text(
        '<?xml version="1.0"?><mzXML xmlns="http://sashimi.sourceforge.net/schema_revision/'
        'mzXML_3.2"><msRun><msInstrument><msModel category="msModel" value="TripleTOF 5600"/>'
        f"</msInstrument>{scans}</msRun></mzXML>"
    )
    return str(path)


def mzxml_parts():
    both = [peak for molecule in MOLECULES for peak in ms1_peaks(molecule[0])]
    inner = "".join(
        mzxml_scan(
            number,
            2,
            fragments(molecule),
            f'<precursorMz precursorScanNum="1" precursorCharge="1">{mz_of(molecule):.5f}'
            "</precursorMz>",
        )
        for number, molecule in enumerate(MOLECULES, start=2)
    )
    return both, inner


def as_mzxml(folder, *, with_ms1):
    both, inner = mzxml_parts()
    return mzxml(folder / "made.mzXML", (mzxml_scan(1, 1, both) if with_ms1 else "") + inner)


def as_nested_mzxml(folder, *, with_ms1):
    both, inner = mzxml_parts()
    scans = mzxml_scan(1, 1, both, inner=inner) if with_ms1 else inner
    return mzxml(folder / "made.mzXML", scans)


FORMATS = [as_mgf, as_mgf_without_ids, as_ms, as_merged_ms, as_mat, as_mzml, as_mzxml]
FORMATS += [as_nested_mzxml]


def first_rows(path):
    result = CliRunner().invoke(
        app, ["formulas", path, "--adduct", "[M+H]+", "-q"], catch_exceptions=False
    )
    assert result.exit_code == 0
    return [row for row in csv.DictReader(io.StringIO(result.stdout)) if row["rank"] == "1"]


@pytest.mark.parametrize("write", FORMATS)
def test_the_first_formula_is_right_with_ms1_and_wrong_without(write, tmp_path):
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()

    shown = first_rows(write(tmp_path / "with", with_ms1=True))
    bare = first_rows(write(tmp_path / "without", with_ms1=False))

    assert [row["formula"] for row in shown] == FORMULAS
    assert [row["formula"] for row in bare] != FORMULAS
    assert not set(FORMULAS) & {row["formula"] for row in bare}
    assert {row["isotope_score"] for row in bare} == {""}
    assert all(-1 < float(row["isotope_score"]) <= 0 for row in shown)
    assert all(float(row["probability"]) > 0.9 for row in shown)
    assert [row["spectrum_id"] for row in shown] == [row["spectrum_id"] for row in bare] or (
        write in (as_mgf_without_ids, as_ms, as_merged_ms)  # their names hold the index
    )


def test_the_isotopes_of_a_file_reach_predict(tmp_path):
    path = as_mgf(tmp_path, with_ms1=True)
    settings = PredictSettings(sampling=SamplingSettings(steps=2, samples=20), top_k=50)

    summary = predict(
        PredictRequest((path,), str(tmp_path / "out.csv"), settings=settings), stub_model()
    )

    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text("utf-8"))))
    likeliest = {row["feature_id"]: row for row in rows if row["formula_rank"] in ("1", "")}
    assert [likeliest[number]["formula"] for number in "01"] == FORMULAS
    assert [likeliest[number]["index"] for number in "01"] == ["1", "3"]
    assert float(likeliest["0"]["formula_probability"]) > 0.9
    assert (summary.n_ms1, summary.n_spectra) == (2, 2)


def test_blocks_of_ms1_alone_are_no_rows(tmp_path):
    path = Path(as_mgf(tmp_path, with_ms1=True))
    path.write_text(re.sub(r"MSLEVEL=2", "MSLEVEL=1", path.read_text()))

    result = CliRunner().invoke(app, ["formulas", str(path), "-q"], catch_exceptions=False)

    assert list(csv.DictReader(io.StringIO(result.stdout))) == []
