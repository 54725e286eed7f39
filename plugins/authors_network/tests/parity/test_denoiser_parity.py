"""The reference denoiser against the authors' own outputs, narrow and full."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from duallgd_authors_network.denoiser import ReferenceDenoiser
from duallgd_authors_network.settings import ReferenceDenoiserSettings
from plugins.authors_network.tests.parity.folder import variant_names
from plugins.authors_network.tests.parity.networks import (
    denoiser,
    graphs,
    in_double,
    off_diagonal,
    recipe,
)

pytestmark = pytest.mark.parity
NARROW, FULL = 1e-5, 1e-3


@pytest.fixture(scope="module")
def batch(parity):
    return parity.arrays("denoiser_inputs.npz")


@pytest.fixture(scope="module")
def unpadded(parity, batch):
    """Each graph on its own, with the features that the reference computes without padding."""
    features = parity.arrays("extra_features.npz")
    singles = []
    for k, n in enumerate(batch["node_counts"].tolist()):
        E = batch["E"][k : k + 1, :n, :n]
        X, y = features[f"unpadded{k}_X_in"], features[f"unpadded{k}_y_in"]
        singles.append((X, E, y, torch.ones(1, n, dtype=torch.bool)))
    return singles


def projections(outputs, prefix):
    names = [f"random_features_{prefix}layer{number}" for number in range(len(outputs))]
    return [outputs[name] for name in names if name in outputs]


def narrow(parity, variants, name):
    """A variant's network and the authors' names of its tensors."""
    overrides = variants[name]["overrides"]
    feature_type = overrides.get("performer_feature_type", "orthogonal")
    drawn = projections(parity.arrays("narrow_outputs.npz"), f"{feature_type}_")
    weights = parity.weights(f"{variants[name]['weights']}.safetensors")
    return denoiser(weights, drawn, overrides)


@pytest.mark.parametrize("variant", variant_names())
@torch.no_grad()
def test_a_variant_has_the_reference_s_tensors_and_logits(
    parity, variants, batch, unpadded, variant
):
    model, taken = narrow(parity, variants, variant)
    outputs, width = parity.arrays("narrow_outputs.npz"), model.settings.condition_width
    assert len(taken) == variants[variant]["keys_used"]

    for k, single in enumerate(unpadded):
        seen = graphs(*single, width)
        got, where = off_diagonal(model.float()(seen))
        exact, _ = off_diagonal(model.double()(in_double(seen)))

        # Sines and cosines give weights of both signs, whose sum may be near zero: there float32
        # leaves fewer digits, in the reference as in ours.
        rounding = (got - exact)[:, where].abs().max().item()
        tolerance = NARROW + (10 * rounding if model.settings.kernel == "waves" else 0)
        expected = outputs[f"{variant}/E_unpadded{k}"]
        assert_close(got[:, where], expected[:, where], atol=tolerance, rtol=0)

    k, single = filling(batch)
    got, where = off_diagonal(model(in_double(graphs(*single, width))))
    expected = outputs[f"{variant}/E_f64"][k : k + 1]
    assert_close(got[:, where], expected[:, where], atol=1e-6, rtol=0)


def test_loss_and_gradients_are_the_reference_s(parity, variants, unpadded):
    model, _ = narrow(parity, variants, "performer_positive")
    clean = parity.arrays("extra_features.npz")["E0_clean"]
    stored = parity.json("narrow_loss_and_grad_norms.json")

    losses, counts = [], []
    for k, single in enumerate(unpadded):
        n = single[3].shape[1]
        first, second = torch.triu_indices(n, n, 1)
        logits = model(graphs(*single, model.settings.condition_width))[0]
        losses.append(cross_entropy(logits, clean[k, first, second].argmax(-1), reduction="sum"))
        counts.append(len(first))
    loss = torch.stack(losses).sum() / sum(counts)
    loss.backward()

    per_graph = [part.item() / count for part, count in zip(losses, counts, strict=True)]
    assert 2 * sum(counts) == stored["ordered_pairs"]
    assert loss.item() == pytest.approx(stored["loss"], abs=1e-5)
    assert per_graph == pytest.approx(stored["loss_per_graph"], abs=1e-5)
    norms = {
        name: 0.0 if p.grad is None else p.grad.norm().item()
        for name, p in model.named_parameters()
    }
    assert norms == pytest.approx(stored["grad_l2"], abs=1e-5, rel=1e-3)


@pytest.mark.parametrize("kernel", ["performer_positive", "softmax"])
@torch.no_grad()
def test_intermediate_states_are_the_reference_s(parity, variants, batch, kernel):
    model, _ = narrow(parity, variants, kernel)
    stored = parity.arrays(f"narrow_intermediates_{kernel}.npz")
    k, single = filling(batch)
    seen = {}

    def keep(path, outputs):
        each = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        seen.update({f"{path}/out{n}": output for n, output in enumerate(each)})
        seen.setdefault(f"{path}_call{sum(p == path for p in calls)}", each[0])
        calls.append(path)

    calls = []
    for path, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, path=path: keep(path, output))

    model(graphs(*single, model.settings.condition_width))

    for name in stored.keys() - {"struct_feat"}:
        assert_close(seen[name], stored[name][k : k + 1], atol=NARROW, rtol=0, msg=name)


@pytest.mark.slow
@torch.no_grad()
def test_the_full_configuration_gives_the_reference_s_logits(parity, unpadded):
    outputs = parity.arrays("full_outputs.npz")
    released = ReferenceDenoiser(ReferenceDenoiserSettings())
    shapes = {name: tuple(p.shape) for name, p in released.named_parameters()}
    weights = recipe(shapes, parity.recipe_seed(), parity.json("full_recipe_checksums.json"))

    for kernel, overrides in (
        ("performer_positive", {}),
        ("softmax", {"linear_attention_type": "softmax"}),
    ):
        model, taken = denoiser(weights, projections(outputs, ""), overrides)
        assert taken == set(weights)
        for k, single in enumerate(unpadded):
            got, where = off_diagonal(model(graphs(*single, model.settings.condition_width)))
            expected = outputs[f"{kernel}/E_unpadded{k}"]
            assert_close(got[:, where], expected[:, where], atol=FULL, rtol=0)


def filling(batch):
    """Number and inputs of the graph that fills the batch, so that nothing of it is padding."""
    k = int(batch["node_counts"].argmax())
    if not batch["node_mask"][k].all():
        pytest.skip("no graph fills the batch")
    return k, tuple(batch[name][k : k + 1] for name in ("X", "E", "y", "node_mask"))
