"""The reference's extra features, recomputed from its noisy graphs."""

import pytest
import torch
from torch.testing import assert_close

from duallgd_authors_network.features import with_features
from duallgd_authors_network.settings import ReferenceSettings
from duallgd_cli.model.layers import line_graph

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def stored(parity):
    return parity.arrays("extra_features.npz")


@pytest.fixture(scope="module")
def symbols(parity):
    return tuple(parity.json("extra_features_molecules.json")["vocabulary"])


def computed(stored, symbols, edges, k, n):
    """Features of graph k, cut to n atoms, from its one-hot bond matrix."""
    line = line_graph(n, edges.device)
    bond_class = edges[k : k + 1, line.first, line.second].argmax(-1)
    return with_features(
        ReferenceSettings(max_atoms=int(stored["max_n_nodes"]), atom_symbols=symbols),
        stored["atom_types_onehot"][k : k + 1, :n].argmax(-1),
        stored["node_mask"][k : k + 1, :n],
        bond_class,
        torch.zeros(1),
        torch.zeros(1, 0),
    )


def graphs(stored, padded):
    sizes = stored["node_counts"].tolist()
    return [(k, max(sizes) if padded else n, n) for k, n in enumerate(sizes)]


@pytest.mark.parametrize("padded", [False, True])
def test_features_of_noisy_graphs_are_the_reference_s(stored, symbols, padded):
    types = len(symbols)
    for k, n, real in graphs(stored, padded):
        got = computed(stored, symbols, stored["E_t"], k, n)

        theirs = stored["extraX_cycles_nonlcc_eigvec"][k, :real, :3]
        assert_close(got.atoms[0, :real, types : types + 3], theirs, atol=1e-5, rtol=0)
        assert_close(got.whole[0, :11], stored["extra_y_n_cycles_ncomp_eigs"][k], atol=1e-5, rtol=0)
        assert_close(got.atoms[0, :real, -2:], stored["extraX_charge_valency"][k, :real])
        assert not got.atoms[0, real:].any()


def test_features_of_the_whole_graph_are_the_reference_s_without_padding(stored, symbols):
    steps = stored["y_in"][:, -1:]
    for k, n, _ in graphs(stored, padded=False):
        got = computed(stored, symbols, stored["E_t"], k, n)

        theirs = stored[f"unpadded{k}_y_in"]
        whole = theirs[:, theirs.shape[1] - got.whole.shape[1] :]
        assert_close(got.whole[:, :-1], whole[:, :-1], atol=1e-5, rtol=0)
        assert_close(steps[k : k + 1], whole[:, -1:])


def test_connected_graphs_have_the_reference_s_eigenvectors_up_to_sign(stored, symbols):
    types = len(symbols)
    for k, n, _ in graphs(stored, padded=False):
        got = computed(stored, symbols, stored["clean_E_with_diag"], k, n)

        theirs = stored["clean_extraX"][k, :n]
        ours = got.atoms[0, :, types : types + theirs.shape[1]]
        assert_close(ours[:, :4], theirs[:, :4], atol=1e-5, rtol=0)
        for column in single_eigenvectors(stored["clean_extra_y"][k, -5:]):
            index = 4 + column
            assert_close(ours[:, index].abs(), theirs[:, index].abs(), atol=1e-4, rtol=0)
        assert_close(got.whole[0, :11], stored["clean_extra_y"][k], atol=1e-5, rtol=0)


def single_eigenvectors(values):
    """Which of the first two eigenvectors belong to an eigenvalue of their own."""
    apart = (values.diff() > 1e-3).tolist()
    return [column for column in (0, 1) if apart[column] and (column == 0 or apart[0])]
