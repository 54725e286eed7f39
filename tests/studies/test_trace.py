"""The walk from random bonds to molecules, as a page for a chemist."""

import importlib.util
import json
import re

import numpy as np
import pytest
from rdkit import Chem

from duallgd_cli.config import SamplingSettings
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.predict import api
from duallgd_cli.predict.model import Encoder, LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from tests.made_graphs import small_settings, stirred
from tests.made_molecules import disassembled
from tests.made_spectra import ALANINE, CAFFEINE, block, mgf
from tests.made_training import cpu
from tests.studies.conftest import STUDIES

STEPS, SAMPLES = 4, 3
# By its file: the standard library has a module of this name.
SPEC = importlib.util.spec_from_file_location("trace_study", STUDIES / "trace.py")
trace = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(trace)


@pytest.fixture
def untrained(monkeypatch):
    """Weights that have learnt nothing draw as others do."""
    network, runtime = stirred(small_settings()), cpu()
    parts = {"sources": (), "scores": (), "ranking": RankingModel(), "sha256": "0" * 64}
    encode, sampler = Encoder(network.encoder, runtime), Sampler(network, runtime)
    model = LoadedModel(encode=encode, name="small", sampler=sampler, **parts)
    monkeypatch.setattr(api, "load", lambda *_, **__: model)
    return model


@pytest.fixture
def file(tmp_path):
    blocks = (block(CAFFEINE, feature_id="7"), block(ALANINE, feature_id="F8"))
    return mgf(tmp_path / "in.mgf", *blocks)


def test_the_page_opens_at_the_start_and_ends_with_molecules(study, file, untrained, tmp_path):
    done = study(trace.trace, file, "-o", "t.html", "--samples", SAMPLES, "--steps", STEPS)

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


def test_steps_go_from_noise_to_the_bonds_that_were_drawn(file, untrained):
    annotated = trace.chosen(str(file), "1", None)
    settings, formula = SamplingSettings(steps=STEPS, samples=SAMPLES), annotated.hypothesis.formula
    fingerprint, _ = untrained.encode(annotated)

    steps, log_prob = trace.drawn(untrained.sampler, fingerprint, formula, settings, seed=0)

    noise = [step.noise for step in steps]
    assert len(noise) == STEPS + 1
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 0.99 > noise[-1] == 0
    chances = np.stack([step.bond_prob for step in steps])
    np.testing.assert_allclose(chances.sum(-1), np.ones((STEPS + 1, SAMPLES, 91)), atol=1e-5)
    assert (chances[-1].argmax(-1) == steps[-1].bond_class).all()
    assert log_prob.shape == (SAMPLES, 91, 5)


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


def test_a_spectrum_is_chosen_by_number_or_id_and_another_is_refused_in_a_sentence(
    study, file, untrained, tmp_path
):
    chosen = [str(trace.chosen(str(file), which, None).hypothesis.formula) for which in ("1", "F8")]
    refused = [
        study(trace.trace, file, "-o", "t.html", *more)
        for more in (("--spectrum", "third"), ("--formula", "C9H8O4"))
    ]

    assert chosen == ["C8H10N4O2", "C3H7NO2"]
    assert [done.code for done in refused] == [2, 2]
    assert "has no spectrum 'third'; give its number, from 1, or an id" in refused[0].err
    assert "spectrum '1': " in refused[1].err
    assert not (tmp_path / "t.html").exists()
