"""What the user says that a molecule must be like, in every source."""

import numpy as np
import pytest

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.config import SamplingSettings
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.predict.model import sources_of
from duallgd_cli.sources import Query, enumerated, propose
from duallgd_cli.sources.collection import known_molecules
from duallgd_cli.sources.enumerated import AnalogueSource, Enumerated
from duallgd_cli.sources.known import Known
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_spectra import annotated
from tests.made_training import cpu

GUIDES = (Guide(require=("[OX2H]",)), Guide(forbid=("[OX2H]",)), Guide(core="Cc1ccccc1"))
PHENOL, TOLUENE, ANISOLE = "Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1"


class Told(Known):
    """What a user knows: what the molecule is like, and these molecules."""

    def __init__(self, guide, *smiles):
        super().__init__(guide)
        molecules = molecules_of(*smiles) if smiles else None
        graphs = [graph_of(molecules, n) for n in range(len(smiles))]
        object.__setattr__(self, "own", graphs)

    def graphs(self, probability, formula):
        return self.own


def query(guide, *analogues, formula="C7H8O"):
    chance = np.full(FINGERPRINT_BITS, 0.01, np.float32)
    settings = SamplingSettings(steps=4)
    return Query(annotated([], formula), chance, known=Told(guide, *analogues), sampling=settings)


@pytest.fixture(scope="module")
def collection():
    return known_molecules(molecules_of(PHENOL, TOLUENE, ANISOLE), max_atoms=99)


@pytest.fixture(scope="module")
def sampler():
    return Sampler(stirred(small_settings(layers=1)), cpu())


@pytest.mark.parametrize("core", [ANISOLE, "OCc1ccccc1"])
def test_what_is_put_together_is_looked_through_for_the_core(core, monkeypatch):
    """Anisole or benzyl alcohol: one of the two excludes the likelier."""
    collection = known_molecules(molecules_of(PHENOL, "CCc1ccccc1", ANISOLE), 99)
    monkeypatch.setattr(enumerated, "_PUT_TOGETHER", 1)
    monkeypatch.setattr(enumerated, "changed", lambda *_: iter(()))

    (one,) = Enumerated(collection).propose(query(Guide(core=core)), 40, seed=1)

    assert not Guide(core=core).fault(one.mol)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_candidate_of_every_source_is_as_the_user_says(guide, collection, sampler):
    asked = query(guide, TOLUENE, ANISOLE)
    quotas = {"analogues": 20, "enumerated": 10, "templates": 5, "noise": 5}

    proposals = list(propose(sources_of(sampler, collection), asked, quotas, seed=3, most=2))

    assert {"analogues", "enumerated"} <= {one.source for one in proposals if not one.rejection}
    for one in proposals:
        assert bool(one.rejection) == (one.mol is None or bool(guide.fault(one.mol)))


@pytest.mark.parametrize("guide", GUIDES[2:])
def test_in_further_rounds_what_was_listed_of_the_users_molecules_is_not_listed_again(
    guide, sampler
):
    """It would count twice among the samples, and nothing speaks for it twice."""
    asked = query(guide, TOLUENE, PHENOL)

    proposals = list(propose([AnalogueSource(sampler)], asked, {"analogues": 20}, seed=3))

    listed = [one.mol for one in proposals if one.log_likelihood is None]
    names = list(map(canonical_smiles, listed))
    assert len(proposals) > 20  # hardly any graph of this network is as the user says
    assert len(names) > 0
    assert len(set(names)) == len(names)
