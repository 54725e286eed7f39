"""MS1 spectra turn a wrong first formula into the right one; rows stay the same."""

import pytest
from typer.testing import CliRunner

from duallgd_cli.chem.adduct import parse_adduct, precursor_mz
from duallgd_cli.chem.elements import ELECTRON_MASS_DA
from duallgd_cli.chem.formula import Formula
from duallgd_cli.cli import app
from tests.made_runs import rows_of
from tests.made_spectra import BROMINATED, CHLORINATED, block, mgf, ms1_block, ms1_lines, ms1_peaks
from tests.unit.spectra.reading.test_xml_formats import mzxml, mzxml_scan, peaks_of_mzxml

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


def as_ms(folder, *, with_ms1):
    text = ""
    for number, molecule in enumerate(MOLECULES):
        text += f">compound made{number}\n>parentmass {mz_of(molecule):.5f}\n>ionization [M+H]+\n"
        text += "\n>ms2\n" + "".join(f"{mz:.5f} {h}\n" for mz, h in fragments(molecule))
        text += f"\n>ms1merged\n{ms1_lines(molecule)}\n\n" if with_ms1 else ""
    path = folder / "made.ms"
    path.write_text(text)
    return str(path)


def as_nested_mzxml(folder, *, with_ms1):
    """A run: an MS1 scan of both, which encloses an MS2 scan of each."""
    both = [peak for molecule in MOLECULES for peak in ms1_peaks(molecule[0])]
    inner = "".join(
        mzxml_scan(n, 2, peaks_of_mzxml(64, False, fragments(molecule)), ion=mz_of(molecule))
        for n, molecule in enumerate(MOLECULES, start=2)
    )
    outer = mzxml_scan(1, 1, peaks_of_mzxml(64, False, both), inner, ion=None)
    path = folder / "made.mzXML"
    run = mzxml(outer if with_ms1 else inner)
    path.write_text(run.replace("Q Exactive", "TripleTOF 5600"))
    return str(path)


def first_rows(path):
    result = CliRunner().invoke(
        app, ["formulas", path, "--adduct", "[M+H]+", "-q"], catch_exceptions=False
    )
    assert result.exit_code == 0
    return [row for row in rows_of(result.stdout) if row["rank"] == "1"]


@pytest.mark.parametrize("write", [as_mgf, as_ms, as_nested_mzxml])
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
        write is as_ms  # its names hold the index
    )
