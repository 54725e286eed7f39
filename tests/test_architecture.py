"""The layout of the package: who may import whom, and rules that a linter does not know."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import duallgd_cli

PACKAGE = Path(duallgd_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]
# Room -> rooms it may import, besides itself, errors and files. A room is a folder or a
# top-level module.
_CORE = {"data", "spectra", "chem", "model", "diffusion", "checkpoint", "runtime", "config"}
_PREDICTING = {"sources", "scores", "ranking", "results", "predict"}
_COMMANDS = {"writers", "report", "formulas", "train", "evaluate", "bench"}
ALLOWED = {
    "errors": set(),
    "files": set(),
    "tables": set(),
    "config": set(),
    "runtime": set(),
    "stopping": set(),
    "plots": set(),
    "chem": set(),
    "spectra": {"chem", "config"},
    "model": {"config", "chem", "runtime"},
    # The types of the network's input are the network's; data/ builds them.
    "data": {"spectra", "chem", "config", "model", "runtime"},
    "checkpoint": {"model", "config", "runtime", "predict"},  # of the last, the type of a plug-in
    "diffusion": {"config", "model", "runtime", "chem"},
    # A recipe draws on fold val and fits the ranking by it.
    "train": _CORE | {"sources", "scores", "predict", "evaluate"},
    "results": {"spectra", "chem", "config"},
    # What proposes molecules, what scores them, what ranks them: each is one call of the pipeline.
    "sources": _CORE - {"checkpoint"} | {"scores"},
    "scores": {"data", "spectra", "chem", "sources"},
    "ranking": {"config", "chem", "spectra", "results", "sources"},
    "predict": _CORE | _PREDICTING | {"formulas", "writers"},
    "formulas": {"spectra", "chem", "config", "predict", "writers", "results"},
    "writers": {"chem", "results", "spectra"},
    "evaluate": _CORE | _PREDICTING | {"plots"},
    "bench": _CORE - {"data"} | {"predict", "results"},
    "report": _CORE | _PREDICTING | {"formulas", "writers"},
    "cli": _CORE | _PREDICTING | _COMMANDS | {"stopping", "plots"},
    "__main__": {"cli", "runtime", "stopping"},
    "__init__": {"predict"},
}

# Constants that every room shares, as it does the errors: element order and bond classes.
VOCABULARY = "chem.elements"

# Library -> where it may be imported.
LIBRARIES = {
    "torch": r"(data|model|diffusion|sources|train|checkpoint|evaluate|bench)/"
    r"|predict/model\.py|runtime\.py",
    # The network is trained and measured on prepared data where there is no rdkit.
    "rdkit": r"(?!(model|diffusion|train|bench|checkpoint|cli)/|runtime|__main__)",
    "matchms": r"sources/library\.py",  # elsewhere its spectra are taken without it
    "lxml": r"spectra/reading(/|\.py)",
    "typer": r"cli/|__main__\.py",
    "rich": r"cli/",
    "matplotlib": r"plots\.py",
    "jinja2": r"report/",
    "myopic_mces": r"evaluate/metrics\.py",
    "duallgd_authors_network": r"(?!)",  # nowhere: it is a plug-in
}


@cache
def tree_of(path):
    """The parsed source of a file, once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path):
    """Every module that a file imports, at its top or inside a function, type-checking included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} has a relative import"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def target_room(module):
    """The room that an import reaches; None outside the package and for shared words."""
    root, _, inside = module.partition(".")
    if root != "duallgd_cli" or inside.startswith(VOCABULARY):
        return None
    return inside.partition(".")[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_room_imports_only_the_rooms_it_may(name):
    room = Path(name).with_suffix("").parts[0]
    allowed = ALLOWED[room] | {room, "errors", "files", "tables", "__version__"}

    wrong = [
        f"{name}:{line} imports {module}"
        for module, line in imports_of(PACKAGE / name)
        if target_room(module) is not None and target_room(module) not in allowed
    ]

    assert not wrong


def loaded_with(path):
    """The modules of the package that importing a file loads: its imports outside functions."""
    inner = {
        node
        for outer in ast.walk(tree_of(path))
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING")
        for node in ast.walk(outer)
    }
    known = {name.removesuffix(".py").replace("/", ".") for name in NAMES}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node not in inner:
            module = (node.module or "").removeprefix("duallgd_cli.")
            within = {f"{module}.{alias.name}" for alias in node.names} & known
            yield from within or {module} & known


def test_no_modules_import_each_other_in_a_circle():
    waiting = {
        name.removesuffix(".py").replace("/", "."): set(loaded_with(path))
        for path, name in zip(FILES, NAMES, strict=True)
    }

    while waiting:
        free = [module for module, needed in waiting.items() if not needed & set(waiting)]
        assert free, f"a circle among {sorted(waiting)}"
        for module in free:
            del waiting[module]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_imported_only_where_it_belongs(library):
    wrong = [
        f"{name}:{line}"
        for path, name in zip(FILES, NAMES, strict=True)
        for module, line in imports_of(path)
        if module.partition(".")[0] == library and not re.match(LIBRARIES[library], name)
    ]

    assert not wrong


def settings_fields(tree):
    """Every field of every settings class of a file, as (class, field)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Settings", "Config")):
            for line in node.body:
                if isinstance(line, ast.AnnAssign):
                    yield node.name, line.target.id


def attributes_read(tree):
    """Every attribute that a file reads, checks of a settings class on itself left out."""
    checks = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in checks:
            yield node.attr


def test_every_setting_is_read_somewhere():
    trees = [tree_of(path) for path in FILES]
    read = {attribute for tree in trees for attribute in attributes_read(tree)}

    unread = [
        f"{owner}.{field}"
        for tree in trees
        for owner, field in settings_fields(tree)
        if field not in read
    ]

    assert not unread


def test_nothing_is_left_for_later():
    left = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|pragma: no cover")

    found = [n for p, n in zip(FILES, NAMES, strict=True) if left.search(p.read_text("utf-8"))]

    assert not found


def test_messages_quote_input_by_one_function():
    """`errors.quote` cuts what it repeats and escapes what a terminal would act on."""
    quoting = re.compile(r"![rsa]\}")

    found = [n for p, n in zip(FILES, NAMES, strict=True) if quoting.search(p.read_text("utf-8"))]

    assert found == ["__init__.py"]  # the name of an attribute, which no file gives
