"""Reading the authors' checkpoints, which are pickles, without running anything that is in them.

A pickle names the functions that rebuild it. Here tensors and a few plain containers are rebuilt by
our own code, every other class becomes an `InertRecord` of its contents, and a file that names
anything able to act on the machine is refused. Nothing is ever imported by name.
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from duallgd_cli.errors import WeightsError, clip, quote

_STORAGES: Final = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
# Modules of which a checkpoint has no use but harm.
_REFUSED: Final = frozenset(
    [
        *("asyncio", "bdb", "code", "codeop", "commands", "ctypes", "ftplib", "http", "importlib"),
        *("io", "marshal", "multiprocessing", "nt", "os", "pdb", "pickle", "pip", "pkgutil"),
        *("popen2", "posix", "profile", "pty", "pydoc", "requests", "runpy", "shelve", "shutil"),
        *("signal", "smtplib", "socket", "subprocess", "sys", "timeit", "urllib", "webbrowser"),
    ]
)
# Plain types, and names that stay inert although they are built in.
_PLAIN: Final[dict[str, type]] = {"set": set, "frozenset": frozenset, "dict": dict, "list": list}
_INERT_BUILTINS: Final = frozenset(
    [
        *("object", "getattr", "tuple", "int", "float", "bool", "str", "bytes", "bytearray"),
        *("complex", "slice", "range", "type", "long", "unicode", "xrange", "Ellipsis"),
    ]
)


class InertRecord:
    """An object of a class that is not known here: what it was made of, and nothing it could do.

    Attributes:
        class_name: Name of the class, module first.
        arguments: What its constructor would have been given.
        state: Its attributes, if it had any, else None.
        contents: Elements, if it was a list or a set.
        entries: Values by key, if it was a mapping.
    """

    class_name: str = ""
    arguments: tuple[Any, ...]
    state: Any
    contents: list[Any]
    entries: dict[Any, Any]

    def __new__(cls, *arguments: object, **_: object) -> "InertRecord":
        """Keep the arguments."""
        self = super().__new__(cls)
        self.arguments = arguments
        self.state = None
        self.contents = []
        self.entries = {}
        return self

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        self.entries[key] = value

    def __call__(self, *arguments: object, **_: object) -> "InertRecord":
        """A record of the call, which does not happen."""
        return InertRecord(self, *arguments)

    def append(self, value: object) -> None:
        """Keep an element."""
        self.contents.append(value)

    def extend(self, values: Iterable[object]) -> None:
        """Keep elements."""
        self.contents.extend(values)

    add = append

    @property
    def attributes(self) -> dict[str, Any]:
        """Its state as values by name; empty if it is anything else."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        known = [part for part in parts if isinstance(part, dict)]
        return {name: value for part in known for name, value in part.items()}


def read(path: Path) -> dict[str, Any]:
    """Read a file written by ``torch.save``, with inert records in place of unknown objects.

    Args:
        path: The file.

    Returns:
        Its top level.

    Raises:
        WeightsError: No such file, not such a file, damaged, or it names something dangerous.
    """
    if not path.is_file():
        raise WeightsError(f"checkpoint {path} does not exist; give a .ckpt or .pt file")
    try:
        with zipfile.ZipFile(path) as archive:
            content = _Archive(archive).content()
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


class _Archive:
    """The parts of a zip file that torch.save writes: one pickle, and one file for each storage."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise WeightsError(f"holds {len(pickles)} pickles where torch.save writes 1")
        self._root = pickles[0].removesuffix("data.pkl")
        if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
            raise WeightsError("is a compressed archive, which torch.save never writes")
        order = f"{self._root}byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            raise WeightsError("was written on a big-endian machine, which is not supported")
        self._storages: dict[str, Tensor] = {}

    def content(self) -> object:
        """The unpickled top level."""
        return _Unpickler(BytesIO(self._archive.read(f"{self._root}data.pkl")), self.storage).load()

    def storage(self, key: str, dtype: torch.dtype) -> Tensor:
        """A storage as a flat tensor; every storage is read once."""
        if key not in self._storages:
            raw = bytearray(self._archive.read(f"{self._root}data/{key}"))
            self._storages[key] = (
                torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
            )
        return self._storages[key].view(dtype)


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


class _Unpickler(pickle.Unpickler):
    """Rebuilds what is allowed, keeps records of the rest, refuses what could do harm."""

    def __init__(self, stream: BytesIO, storage: Callable[[str, torch.dtype], Tensor]) -> None:
        super().__init__(stream)
        self._storage = storage
        self._classes: dict[str, type[InertRecord]] = {}

    def find_class(self, module: str, name: str) -> object:
        """What a name in the pickle stands for."""
        known = _known(module, name)
        if known is not None:
            return known
        root = module.partition(".")[0]
        dangerous = root in _REFUSED or (
            root in ("builtins", "__builtin__") and name not in _INERT_BUILTINS
        )
        if dangerous:
            raise WeightsError(
                f"names {clip(module)}.{clip(name)}, which no weights need; it was refused and "
                "nothing in it was run"
            )
        full = f"{module}.{name}"
        return self._classes.setdefault(
            full, type("InertRecord", (InertRecord,), {"class_name": full})
        )

    def persistent_load(self, reference: Any) -> Tensor:  # noqa: ANN401 - whatever the file says
        """A storage of the archive, as a flat tensor."""
        _, dtype, key, *_ = reference
        if not isinstance(dtype, torch.dtype):
            raise WeightsError(f"holds a storage of unknown type {quote(dtype)}")
        return self._storage(str(key), dtype)


def _known(module: str, name: str) -> object:
    """Our own stand-in for a name that is allowed; None for any other."""
    if module in ("torch", "torch.storage") and name in _STORAGES:
        return _STORAGES[name]
    if module in ("builtins", "__builtin__") and name in _PLAIN:
        return _PLAIN[name]
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    return _BUILDERS.get((module, name))


def _tensor(storage: Tensor, offset: int, size: Any, stride: Any, *_: object) -> Tensor:  # noqa: ANN401
    return storage.as_strided(tuple(size), tuple(stride), offset).clone()


_BUILDERS: Final[dict[tuple[str, str], object]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): _Builder(lambda size=(): tuple(size)),
    ("torch", "device"): _Builder(lambda *_: "cpu"),
    ("torch._utils", "_rebuild_tensor_v2"): _Builder(_tensor),
    ("torch._utils", "_rebuild_parameter"): _Builder(lambda data, *_: data),
    ("_codecs", "encode"): _Builder(lambda text, *_: text.encode("latin1")),
}
