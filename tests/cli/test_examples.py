"""The example files are what their script makes, and the script makes sense."""

import pytest
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import parse_smiles
from examples import demo, make_examples


def test_the_files_are_those_that_the_script_writes(tmp_path, monkeypatch):
    committed = {
        name: (make_examples.HERE / name).read_text(encoding="utf-8")
        for name in ("spectra.mgf", "spectra.mzML", "formulas.csv", "structures.csv")
    }
    committed["selftest.mgf"] = make_examples.SELFTEST.read_text(encoding="utf-8")
    monkeypatch.setattr(make_examples, "HERE", tmp_path)
    monkeypatch.setattr(make_examples, "SELFTEST", tmp_path / "selftest.mgf")

    make_examples.main()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == committed


@pytest.mark.parametrize("made", make_examples.SPECTRA, ids=lambda made: made.molecule)
def test_fragments_are_parts_of_their_precursor_and_the_demo_knows_its_structure(made):
    parent = Formula.parse(made.precursor.removesuffix("+Na"))

    for ion in made.peaks.split()[::2]:
        fragment = Formula.parse(ion.removesuffix("+Na"))
        assert all(f <= p for f, p in zip(fragment.counts, parent.counts, strict=True)), ion
    known = CalcMolFormula(parse_smiles(demo.STRUCTURES[made.molecule]))
    assert Formula.parse(known) == Formula.parse(made.formula)


def test_nothing_in_the_files_says_what_they_are():
    text = (make_examples.HERE / "spectra.mgf").read_text().upper()

    for word in ("SMILES", "INCHI", *(made.molecule.upper() for made in make_examples.SPECTRA)):
        assert word not in text


@pytest.mark.slow
def test_the_demo_tells_right_from_wrong_and_known_from_new(tmp_path, capsys):
    (tmp_path / "demo.csv").write_text(
        "feature_id,rank,smiles,inchikey14,confidence,family_confidence,sources,level,status\n"
        "1,1,Cn1c(=O)c2c(ncn2C)n(C)c1=O,RYYVLZVUVIJVGH,0.9,0.9,database noise,structure,ok\n"
        "2,1,c1cc[nH]c1,AAAAAAAAAAAAAA,0.2,0.3,templates,family,ok\n"
        "2,2,NC(Cc1c[nH]c2ccccc12)C(=O)O,QIVBCDIJIAJPQS,0.1,0.75,noise,family,ok\n"
        "3,,,,,,,nothing,timeout\n"
    )

    rows = demo.compared(tmp_path / "demo.csv")
    demo.show(rows)
    told = {row["molecule"]: row for row in rows}

    assert set(told) == set(demo.STRUCTURES)
    assert told["caffeine"]["true structure"] == "first"
    assert told["tryptophan"]["true structure"] == "rank 2"
    assert told["quercetin"]["true structure"] == "not found"
    assert (told["caffeine"]["from"], told["tryptophan"]["from"]) == ("database noise", "templates")
    assert told["caffeine"]["certain to"] == "structure 0.90"
    assert told["tryptophan"]["certain to"] == "family 0.75"
    assert {row["trained on"] for row in told.values()} == {"yes", "no"}
    shown = capsys.readouterr().out
    assert "1 of 11 first candidates are right" in shown
    assert "c1cc[nH]c1" in shown
