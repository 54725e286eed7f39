"""The walk from random bonds to molecules, as a page for a chemist."""

import importlib.util
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.predict import api
from duallgd_cli.predict.model import Encoder
from tests.made_graphs import small_settings, stirred
from tests.made_molecules import disassembled
from tests.made_spectra import ALANINE, CAFFEINE, block, mgf
from tests.made_training import cpu
from tests.stub_model import stub_model
from tests.studies.conftest import STUDIES

STEPS, SAMPLES = 4, 3
# By its file: the standard library has a module of this name.
SPEC = importlib.util.spec_from_file_location("trace_study", STUDIES / "trace.py")
trace = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(trace)


@pytest.fixture
def traced(study, monkeypatch, tmp_path):
    """Run it on two features with weights that have learnt nothing, which draw as others do."""
    network = stirred(small_settings())
    encode, sampler = Encoder(network.encoder, cpu()), Sampler(network, cpu())
    model = replace(stub_model(), encode=encode, sampler=sampler)
    monkeypatch.setattr(api, "load", lambda *_, **__: model)
    blocks = (block(CAFFEINE, feature_id="7"), block(ALANINE, feature_id="F8"))
    few = (mgf(tmp_path / "in.mgf", *blocks), "--samples", SAMPLES, "--steps", STEPS)
    return lambda *options: study(trace.trace, *few, "-o", "t.html", *options)


def test_the_page_opens_at_the_start_and_ends_with_molecules(traced, tmp_path):
    done = traced()

    assert done.code == 0, done.err
    written = (tmp_path / "t.html").read_text(encoding="utf-8")
    words = json.loads(re.search(r'id="words">(.*?)</script>', written).group(1))
    assert len(words) == STEPS + 1
    assert words[0] == "Start: random bonds between the atoms of C8H10N4O2"
    assert words[1].startswith("Step 1 of 4: ")
    assert words[-1] == "Finished: each candidate as a molecule"
    assert written.count('class="frame on" data-step="0"') == SAMPLES
    assert written.count('class="frame') == SAMPLES * (STEPS + 1)
    assert len(re.findall(r"<b>Candidate \d</b>: (.*?)</figcaption>", written)) == SAMPLES
    for text in (
        "C8H10N4O2, [M+H]+, m/z 195.0876 (feature 7)",
        ">C6H8N3O</text>",  # the fragment at m/z 138.0662
        "m/z 138.0662: C6H8N3O, loss of C2H3NO",
    ):
        assert text in written


def test_a_finished_molecule_is_drawn_and_bonds_that_are_none_are_said():
    mol = Chem.MolFromSmiles("CC(N)C(O)=O")
    read, apart = disassembled(mol).bond_class, np.zeros(15, np.int64)

    end = trace.ending(trace.Formula.parse("C3H7NO2"), read, np.zeros((*read.shape, 5), np.float32))
    radical = trace.Formula.parse("C3H8NO2")  # of which no bonds make a molecule
    none = trace.ending(radical, apart, np.log(np.eye(5, dtype=np.float32)[apart] + 1e-30))

    assert Chem.MolToSmiles(end.mol) == Chem.MolToSmiles(mol)
    assert re.match(r"CC\(N\)C\(=O\)O; contains .*amino acid", end.words)
    assert "<path class='bond-0" in end.drawing
    assert ((end.at > 0) & (end.at < (trace.WIDTH, trace.HEIGHT))).all()
    assert (none.mol, none.words.partition(": ")[0]) == (None, "no molecule")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--spectrum third", "has no spectrum 'third'; give its number, from 1, or an id"),
        ("--spectrum F8 --formula C9H8O4", "spectrum 'F8': C9H8O4 as [M+H]+ has m/z 181.0495"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_a_sentence(traced, tmp_path, options, said):
    done = traced(*options.split())

    assert (done.code, said in done.err) == (2, True), done.err
    assert not (tmp_path / "t.html").exists()
