"""Recipes for other engines and packagers say what the program and pyproject.toml say."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from lxml import etree

import duallgd_cli
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.metrics import score
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict.api import to_dataframe
from tests.cli.conftest import python
from tests.test_documents import ROOT, parse

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
VERSION = duallgd_cli.__version__
SOURCES = [path.read_text("utf-8") for path in (ROOT / "duallgd_cli").rglob("*.py")]
MODULES = {"yaml": "pyyaml", "myopic_mces": "myopic-mces"}  # whose packages have other names


def yaml_of(path):
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def needed(wanted):
    """Names of the packages that requirements ask for."""
    return {re.match(r"[\w-]+", need)[0] for need in wanted}


def test_what_the_package_imports_is_installed_with_it_or_an_extra():
    nodes = [node for text in SOURCES for node in ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in names} - {"duallgd_cli", "_typeshed"}
    imported = {MODULES.get(name, name) for name in roots - sys.stdlib_module_names}
    optional = needed(
        need for name in EXTRAS.keys() - {"dev", "docs", "workflow"} for need in EXTRAS[name]
    )

    assert imported - optional == needed(PROJECT["dependencies"])
    assert set(re.findall(r"duallgd\[(\w+)\]", "".join(SOURCES))) <= set(EXTRAS)  # in messages
    (own,) = (need for need in EXTRAS["dev"] if "duallgd[" in need)
    assert {*own[8:-1].split(","), "dev"} == set(EXTRAS)


def with_all_they_need(packages):
    """Names of packages and of what they need, and so on, as installed here; lower case."""
    seen, waiting = set(), list(packages)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name not in seen:
            seen.add(name)
            try:
                waiting += needed(need for need in requires(name) or () if "extra ==" not in need)
            except PackageNotFoundError:
                continue  # of another system or Python
    return seen


@pytest.mark.slow
def test_no_extra_is_needed_to_predict(tmp_path):
    """mzML once needed what only matchms had brought."""
    base = {*with_all_they_need(needed(PROJECT["dependencies"])), "duallgd"}
    others = [
        module
        for module, packages in packages_distributions().items()
        if not {name.lower().replace("_", "-") for name in packages} & base
    ]
    assert {"matchms", "psims", "pandas", "scipy"} <= set(others)
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({others}))\n"
        "from tests.fuzz.stub_command import main; main()"
    )
    output = tmp_path / "out.mztab"
    inputs = ("examples/spectra.mgf", "examples/spectra.mzML")
    more = ("--parts", "--report", tmp_path / "out.html", "-q", "--samples", "12")

    done = python("-c", program, "0", "predict", *inputs, "-o", output, *more, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    text = output.read_text("utf-8")
    assert all(f"ms_run[{run}]:index=" in text for run in (1, 2))


@pytest.mark.parametrize(
    ("module", "asked", "extra"),
    [
        ("myopic_mces", lambda: score([], [], EvaluateSettings()), "evaluate"),
        ("pandas", lambda: to_dataframe([]), "notebook"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(module, asked, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(UsageError, match=rf"^.*{module}.*pip install 'duallgd\[{extra}\]'.*$"):
        asked()


def test_the_conda_recipe_has_the_dependencies_of_the_wheel():
    recipe = yaml_of("recipe/meta.yaml")
    named = {re.sub(r"^torch\b", "pytorch", need) for need in PROJECT["dependencies"]}
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]

    run = {need.replace(" ", "") for need in recipe["requirements"]["run"]}

    assert run == named | {f"python{PROJECT['requires-python']}"}
    assert (recipe["package"]["version"], recipe["build"]["entry_points"]) == (VERSION, scripts)


def test_the_galaxy_tool_calls_options_that_exist():
    tool = etree.parse(str(ROOT / "examples/galaxy/duallgd_predict.xml")).getroot()
    command = re.sub(r"^\s*#.*$|\\\$", "", tool.findtext("command"), flags=re.MULTILINE)

    parse(shlex.split(command.replace("${GALAXY_SLOTS:-1}", "1").replace("$", ""))[1:])

    declared = {one.get("name") or one.get("argument")[2:] for one in tool.findall("inputs/param")}
    used = set(re.findall(r"\$(\w+)", tool.findtext("command"))) - {"GALAXY_SLOTS"}
    assert used | {"report_wanted"} == declared
    assert VERSION in tool.get("version")
    assert tool.find("requirements/requirement").get("version") == VERSION


def test_the_image_has_what_the_package_needs_and_enough_for_the_wheel(tmp_path):
    """The steps of a build that need no daemon, in an empty folder."""
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    torch = next(need for need in PROJECT["dependencies"] if need.startswith("torch"))
    for words in (f'"{torch}"', "libxrender1 libxext6 libexpat1", "duallgd selftest"):
        assert words in docker
    for line in re.findall("^COPY (.*)$", docker, re.MULTILINE):
        *sources, place = line.split()
        target = tmp_path / "src" / place
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, target)

    options = ("-q", "--no-deps", "--no-build-isolation")
    done = python("-m", "pip", "wheel", *options, "-w", tmp_path, tmp_path / "src")

    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        assert "duallgd_cli/weights/duallgd.safetensors" in held.namelist()


def test_every_document_is_in_the_site():
    def pages(entries):
        for page in (page for entry in entries for page in entry.values()):
            yield from pages(page) if isinstance(page, list) else (page,)

    docs = ROOT / "docs"
    written = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert {*pages(yaml_of("mkdocs.yml")["nav"])} == written | {"commands.md"}


@pytest.mark.slow
def test_the_site_builds_with_a_page_of_commands(tmp_path):
    """What `make docs` does, in a copy; where its links lead is tested in its sources."""
    pytest.importorskip("material", reason="mkdocs-material, of the dev extra, is not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in (*ROOT.glob("*.md"), "Makefile", "mkdocs.yml", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "docs", "-o", "env", f"BIN={Path(sys.executable).parent}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    site = tmp_path / "build" / "site"
    assert (site / "index.html").is_file()
    assert "duallgd predict" in (site / "commands" / "index.html").read_text("utf-8")


def test_one_version_everywhere():
    """The citation, the newest change and the classifiers are of the version that is installed."""
    cited = yaml_of("CITATION.cff")
    changes = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    pythons = [line for line in PROJECT["classifiers"] if line.startswith("Programming Language")]

    assert cited["version"] == changes[0] == VERSION
    assert cited["license"] == PROJECT["license"]["text"] == "MIT"
    assert PROJECT["requires-python"].removeprefix(">=") == pythons[0].rpartition(" ")[2]
    assert "Development Status :: 4 - Beta" in PROJECT["classifiers"]
