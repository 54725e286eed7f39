"""Reading the authors' checkpoints, which are pickles, without running anything that is in them.

A pickle names the functions that rebuild it. PyTorch reads the archive; of what the pickle names,
tensors and a few plain containers are rebuilt, and every other class or function becomes an
`InertRecord`, which does nothing when it is called. Nothing is ever imported by name.
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch

from duallgd_authors_network.core import (
    WeightsError,
    clip,
)

_BUILTINS: Final = ("builtins", "__builtin__")


class InertRecord(dict[Any, Any]):
    """An object of a class that is not known here: what it was made of, and nothing it could do.

    It maps its attributes, or its keys if it was a mapping, to their values.
    """

    class_name: str = ""  # module first
    contents: list[Any]  # elements, if it was a list or a set
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __new__(cls, *_: object, **__: object) -> "InertRecord":
        """Nothing but the record, whatever its constructor would have been given."""
        self = super().__new__(cls)
        self.contents = []
        return self

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            self.update(part if isinstance(part, dict) else {})

    def __call__(self, *_: object, **__: object) -> "InertRecord":
        """A record of the call, which does not happen."""
        return InertRecord()

    def append(self, value: object) -> None:
        """Keep an element."""
        self.contents.append(value)

    def extend(self, values: Iterable[object]) -> None:
        """Keep elements."""
        self.contents.extend(values)

    add = append


def read(path: Path) -> dict[str, Any]:
    """The top level of a file of ``torch.save``, with inert records in place of unknown objects.

    Raises:
        WeightsError: No such file, not such a file, or damaged.
    """
    if not path.is_file():
        raise WeightsError(f"checkpoint {path} does not exist; give a .ckpt or .pt file")
    reader = SimpleNamespace(Unpickler=_Unpickler, __name__=__name__)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise WeightsError("is a compressed archive, which torch.save never writes")
        if sum(part.filename.endswith(".pkl") for part in parts) != 1:
            raise WeightsError("does not hold the one pickle that torch.save writes")
        content = torch.load(  # noqa: TID251 - by our own unpickler
            path, map_location="cpu", pickle_module=reader, weights_only=False
        )
    except WeightsError as error:
        raise WeightsError(f"checkpoint {path} {error}") from None
    except Exception as error:  # noqa: BLE001 - a damaged pickle can fail in any way
        raise WeightsError(
            f"checkpoint {path} cannot be read as a file of torch.save "
            f"({type(error).__name__}: {error}); fetch or copy it again"
        ) from None
    if not isinstance(content, dict):
        raise WeightsError(
            f"checkpoint {path} holds a {type(content).__name__}, expected a mapping"
        )
    return content


class _Builder:
    """A function that a pickle may call but cannot change."""

    __slots__ = ("_function",)
    _function: Callable[..., object]

    def __init__(self, function: Callable[..., object]) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: object) -> None:
        raise WeightsError(f"tries to change {clip(name)} of a function; refused")

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)


# What tensors and plain values are rebuilt by.
_BUILDERS: Final[dict[str, object]] = {
    "collections.OrderedDict": OrderedDict,
    "torch.Size": _Builder(lambda size=(): tuple(size)),
    "torch.device": _Builder(lambda *_: "cpu"),
    "torch._utils._rebuild_tensor_v2": _Builder(torch._utils._rebuild_tensor_v2),
    "torch._utils._rebuild_parameter": _Builder(lambda data, *_: data),
    "_codecs.encode": _Builder(lambda text, *_: text.encode("latin1")),
    **{f"{root}.{one.__name__}": one for root in _BUILTINS for one in (set, frozenset, dict, list)},
    **{str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)},
}


class _Unpickler(pickle.Unpickler):
    """Rebuilds what is allowed and keeps records of the rest."""

    def find_class(self, module: str, name: str) -> object:
        """What a name in the pickle stands for."""
        full = f"{module}.{name}"
        return _BUILDERS.get(full) or type("InertRecord", (InertRecord,), {"class_name": full})
