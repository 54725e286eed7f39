"""The rewritten denoiser evaluated by OpenVINO, on a CPU where that is installed.

Its layers are traced once, become code for this processor, and are kept in ``openvino/`` of the
folder that `runtime.cache_folder` names. Deleting that costs the time of making them again and
nothing else. Features of graphs, the time step and edges are computed by PyTorch in float32:
bfloat16 would round the waves of a time step.

Sizes are open. For fixed ones the code is a sixth faster, but takes 0.7 s and 80 MiB for each
number of atoms and samples, and few spectra of a run share those.

Letters: S samples, N atoms.
"""

import hashlib
import io
import logging
import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from duallgd_cli.errors import UsageError
from duallgd_cli.files import DAMAGED_ARRAYS, replaced, sha256
from duallgd_cli.generator import rewritten
from duallgd_cli.generator.rewritten import Rewritten
from duallgd_cli.model.duallgd import Denoiser, DualLGD
from duallgd_cli.model.line_graph import LineGraph, line_graph
from duallgd_cli.runtime import Runtime, cache_folder, version_of

if TYPE_CHECKING:
    from openvino import InferRequest, Model

logger = logging.getLogger(__name__)

_LIBRARY: Final = "openvino"
_OLDEST: Final = 2025  # has a rule for every operation of the layers
# A network of fewer parameters has drawn all its samples before it is converted.
_LEAST_PARAMETERS: Final = 500_000
_INDICES: Final = ("first", "second", "square", "incident", "at_first", "at_second", "endpoint")
# Sizes to trace with: more columns than `rewritten._softmax` pads to.
_TRACED: Final = (2, 20)  # S, N
_BITS: Final = 3
_KEY_LETTERS: Final = 32


class Converted(Rewritten):
    """The layers in OpenVINO; several threads may evaluate side by side.

    Args:
        denoiser: In float32 and evaluation mode, on the CPU.
        runtime: Precision and threads.
        digest: SHA-256 of the weights.

    Raises:
        RuntimeError: OpenVINO cannot convert or compile them.
    """

    def __init__(self, denoiser: Denoiser, runtime: Runtime, digest: str) -> None:
        super().__init__(denoiser, torch.float32)
        self._compiled = _compiled(self, runtime, digest)
        self._idle: list[InferRequest] = []

    def through_layers(
        self,
        atoms: Tensor,
        edges: Tensor,
        y: Tensor,
        memory: Sequence[tuple[Tensor, Tensor] | None],
        graph: LineGraph,
    ) -> Tensor:
        """See `Rewritten.through_layers`."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        given = [x.numpy() for x in _flat(atoms, edges, y, memory, graph)]
        logits = request.infer(given, share_inputs=True)[0]  # a copy
        self._idle.append(request)
        return torch.from_numpy(logits)


def converted_for(model: DualLGD, runtime: Runtime, digest: str) -> Converted | None:
    """The denoiser as OpenVINO evaluates it; None where PyTorch does.

    Args:
        model: In float32, on the CPU.
        runtime: Device, precision, threads and the engine that was asked for.
        digest: SHA-256 of the weights.

    Raises:
        UsageError: OpenVINO was asked for, and cannot evaluate this network here.
    """
    if runtime.engine == "torch":
        return None
    parameters = sum(p.numel() for p in model.denoiser.parameters())
    if runtime.engine == "auto" and parameters < _LEAST_PARAMETERS:
        return None
    problem, level = _problem(model, runtime), logging.DEBUG
    if problem is None:
        model.requires_grad_(False)  # what is traced must not ask for gradients
        try:
            return Converted(model.denoiser, runtime, digest)
        except RuntimeError as error:
            reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
            problem = f"of version {version_of(_LIBRARY)} cannot convert the network: {reason}"
            level = logging.WARNING
    if runtime.engine == "auto":
        logger.log(level, "the network runs on PyTorch: OpenVINO %s", problem)
        return None
    raise UsageError(f"OpenVINO {problem}, or use --engine torch")


def _problem(model: DualLGD, runtime: Runtime) -> str | None:
    """Why OpenVINO cannot evaluate a network here, as the rest of a sentence; None if it can."""
    if runtime.device.type != "cpu":
        return f"runs on a CPU, not on {runtime.device}; add --device cpu"
    if not model.settings.denoiser.pair_features:
        return "evaluates only networks with random features, which these weights do not have"
    return _problem_of_library(runtime)


def _problem_of_library(runtime: Runtime) -> str | None:
    version = version_of(_LIBRARY)
    if version is None:
        return "is not installed; run pip install 'duallgd[openvino]'"
    if int(version.partition(".")[0]) < _OLDEST:
        return f"{version} is too old; run pip install 'openvino>={_OLDEST}'"
    try:
        from openvino import Core
    except (ImportError, OSError) as error:
        return f"{version} cannot be loaded ({error}); install it again"
    able = _only(Core).get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if runtime.autocast_dtype is not None and "BF16" not in able:
        return "has no bfloat16 on this processor; leave out --precision bfloat16"
    return None


@cache
def _only(core: type) -> Any:  # noqa: ANN401
    """The only core of this process, kept to its end.

    Each gives its thread a stack to handle signals on, and the one before back at its end: where
    two do not end in reverse order, the next signal ends the process.
    """
    return core()


def _compiled(layers: Rewritten, runtime: Runtime, digest: str) -> Any:  # noqa: ANN401
    """The layers compiled for this processor, from the cache where it holds them."""
    from openvino import Core

    core, precision = _only(Core), "f32" if runtime.autocast_dtype is None else "bf16"
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": runtime.threads,
        "NUM_STREAMS": runtime.threads,  # a thread for each chunk of samples
        "ENABLE_CPU_PINNING": False,
    }
    made_by = [sha256(Path(path)) for path in (__file__, rewritten.__file__)]
    machine = core.get_property("CPU", "FULL_DEVICE_NAME")
    named = "|".join([digest, *made_by, str(version_of(_LIBRARY)), machine, precision])
    key = hashlib.sha256(named.encode()).hexdigest()
    place = cache_folder() / _LIBRARY / f"{key[:_KEY_LETTERS]}.npz"
    compiled = _kept(core, place, options)
    if compiled is None:
        compiled = core.compile_model(_traced(layers), "CPU", options)
        compiled.export_model(exported := io.BytesIO())  # of 2025 it gives bytes without one
        _keep(place, exported.getvalue())
    return compiled


def _kept(core: Any, place: Path, options: dict[str, Any]) -> Any:  # noqa: ANN401
    """The layers as a run before compiled them; None if none did, or that cannot be used."""
    try:
        with np.load(io.BytesIO(place.read_bytes())) as stored:  # tells where bytes have changed
            return core.import_model(stored["layers"].tobytes(), "CPU", options)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except DAMAGED_ARRAYS:
        logger.warning("%s cannot be read, and is made again", place)
        return None


def _keep(place: Path, content: bytes) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replaced(place) as partial, partial.open("wb") as stream:
            np.savez(stream, layers=np.frombuffer(content, np.uint8))
    except OSError as error:
        logger.warning("%s cannot be kept for the next run: %s", place, error.strerror)


def _flat(
    atoms: Tensor,
    edges: Tensor,
    y: Tensor,
    memory: Sequence[tuple[Tensor, Tensor] | None],
    graph: LineGraph,
) -> list[Tensor]:
    """All that `Rewritten.through_layers` is given, in the order of the converted graph."""
    bits = [part for own in memory if own is not None for part in own]
    return [atoms, edges, y, *bits, *(getattr(graph, name) for name in _INDICES)]


def _traced(layers: Rewritten) -> "Model":
    """The layers as a graph of OpenVINO, all sizes open."""
    import openvino.opset13 as operations
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch import ConversionExtension
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    samples, atoms = _TRACED
    graph = line_graph(atoms, torch.device("cpu"))
    sizes = layers.settings
    heads, width = sizes.atom_heads, sizes.atom_width // sizes.atom_heads
    bits = torch.zeros(heads, width, _BITS), torch.ones(heads, _BITS, width + 1)
    memory = [None if layer.bits is None else bits for layer in layers.layers]
    first = torch.zeros(samples, atoms, sizes.atom_width)
    edges = torch.zeros(samples, graph.n_pairs, sizes.pair_width)
    y = torch.zeros(samples, sizes.global_width)
    example = tuple(_flat(first, edges, y, memory, graph))

    def network(atoms: Tensor, edges: Tensor, y: Tensor, *rest: Tensor) -> Tensor:
        given = iter(rest)
        looked_up = [own and (next(given), next(given)) for own in memory]
        indices = LineGraph(**{**vars(graph), **dict(zip(_INDICES, given, strict=True))})
        return Rewritten.through_layers(layers, atoms, edges, y, looked_up, indices)

    def power_of_two(node: Any) -> Any:  # noqa: ANN401
        factor = operations.constant(np.float32(math.log(2)))
        return operations.exp(operations.multiply(node.get_input(0), factor)).outputs()

    # While gradients are on, `model.tensors.linear` is PyTorch's own, which the converter knows.
    with warnings.catch_warnings(), torch.inference_mode(False), torch.enable_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, example, check_trace=False)
        decoder = TorchScriptPythonDecoder(traced, example_input=example)
        converter = FrontEndManager().load_by_framework("pytorch")
        converter.add_extension(ConversionExtension("aten::exp2_", power_of_two))
        return converter.convert(converter.load(decoder))
