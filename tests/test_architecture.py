"""The layout of the package: contracts of imports, and rules that a linter does not know."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import duallgd_cli

PACKAGE = Path(duallgd_cli.__file__).parent
SOURCES = {
    str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")
}
NODES = {name: list(ast.walk(ast.parse(text))) for name, text in SOURCES.items()}
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


def test_rooms_import_as_the_contracts_of_pyproject_say():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]

    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_library_is_imported_only_where_it_belongs():
    wrong = []
    for name, nodes in NODES.items():
        modules = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
        libraries = {module.partition(".")[0] for module in modules} & LIBRARIES.keys()
        wrong += [(name, used) for used in libraries if not re.match(LIBRARIES[used], name)]

    assert wrong == []


def test_every_setting_is_read_somewhere():
    fields, read = set(), set()
    for nodes in NODES.values():
        checks = {
            inner  # a settings class that looks at itself
            for node in nodes
            if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
            for inner in ast.walk(node)
        }
        read |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and n not in checks}
        fields |= {
            line.target.id
            for node in nodes
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Settings", "Config"))
            for line in node.body
            if isinstance(line, ast.AnnAssign)
        }

    assert len(fields) > 50
    assert fields - read == set()


def test_nothing_is_left_for_later():
    left = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|pragma: no cover")

    assert [name for name, text in SOURCES.items() if left.search(text)] == []


def test_messages_quote_input_by_one_function():
    """`errors.quote` cuts what it repeats and escapes what a terminal would act on."""
    quoting = [name for name, text in SOURCES.items() if re.search(r"![rsa]\}", text)]

    assert quoting == ["__init__.py"]  # the name of an attribute, which no file gives
