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
from itertools import chain
from pathlib import Path

import pytest
import yaml
from lxml import etree

import duallgd_cli
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate.metrics import score
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.predict.api import to_dataframe
from tests.test_documents import parse

ROOT = Path(__file__).resolve().parents[1]
GALAXY = ROOT / "examples" / "galaxy" / "duallgd_predict.xml"
PACKAGE = Path(duallgd_cli.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


# Where a package's name is not its module's.
MODULES = {"yaml": "pyyaml", "myopic_mces": "myopic-mces"}


def imported():
    """Third-party packages that modules of duallgd import, and where."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names | {"duallgd_cli", "_typeshed"}:
                    yield MODULES.get(name, name), path


def needed(wanted):
    """Names of the packages that requirements ask for."""
    return {re.match(r"[\w-]+", need)[0] for need in wanted}


def test_what_the_package_imports_is_installed_with_it_or_an_extra():
    extras = PROJECT["optional-dependencies"]
    others = set(extras) - {"dev", "docs", "workflow"}
    by_name = set(chain.from_iterable(needed(extras[name]) for name in others))
    said = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))

    assert {name for name, _ in imported()} - needed(PROJECT["dependencies"]) - by_name == set()
    assert needed(PROJECT["dependencies"]) - {name for name, _ in imported()} == set()
    assert set(re.findall(r"duallgd\[(\w+)\]", said)) <= set(extras)  # as messages name them


def with_all_they_need(packages):
    """Names of packages and of what they need, and so on, as installed here; lower case."""
    found, waiting = set(), list(packages)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        try:
            waiting += needed(need for need in requires(name) or () if "extra ==" not in need)
        except PackageNotFoundError:
            continue  # of another system or Python
    return found


@pytest.mark.slow
def test_no_extra_is_needed_to_predict(tmp_path):
    """mzML once needed what only matchms had brought."""
    base = with_all_they_need(needed(PROJECT["dependencies"]))
    others = [
        module
        for module, packages in packages_distributions().items()
        if not {one.lower().replace("_", "-") for one in packages} & {*base, "duallgd"}
    ]
    assert {"matchms", "psims", "pandas", "scipy"} <= set(others)
    output = tmp_path / "out.mztab"

    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"import sys; sys.modules.update(dict.fromkeys({others}))\n"
            "from tests.fuzz.stub_command import main; main()",
            *("0", "predict", "examples/spectra.mgf", "examples/spectra.mzML"),
            *("-o", output, "--parts", "--report", tmp_path / "out.html", "-q", "--samples", "12"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    text = output.read_text("utf-8")
    assert all(f"ms_run[{run}]:index=" in text for run in (1, 2))


def test_tests_have_every_extra():
    (own,) = (need for need in PROJECT["optional-dependencies"]["dev"] if "duallgd[" in need)

    assert {*own[8:-1].split(","), "dev"} == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("module", "asked", "extra"),
    [
        ("myopic_mces", lambda: score([], [], EvaluateSettings()), "evaluate"),
        ("pandas", lambda: to_dataframe([]), "notebook"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(module, asked, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(UsageError, match=rf"{module}.*pip install 'duallgd\[{extra}\]'") as told:
        asked()

    assert "\n" not in str(told.value)


def test_the_conda_recipe_has_the_dependencies_of_the_wheel():
    recipe = yaml.safe_load((ROOT / "recipe" / "meta.yaml").read_text("utf-8"))
    named = {re.sub(r"^torch\b", "pytorch", need) for need in PROJECT["dependencies"]}

    run = {need.replace(" ", "") for need in recipe["requirements"]["run"]}

    assert run == named | {f"python{PROJECT['requires-python']}"}
    assert recipe["package"]["version"] == duallgd_cli.__version__
    assert recipe["build"]["entry_points"] == [
        f"{name} = {place}" for name, place in PROJECT["scripts"].items()
    ]


def test_the_galaxy_tool_calls_options_that_exist():
    tool = etree.parse(str(GALAXY)).getroot()
    command = re.sub(r"^\s*#.*$|\\\$", "", tool.findtext("command"), flags=re.MULTILINE)

    parse(shlex.split(command.replace("${GALAXY_SLOTS:-1}", "1").replace("$", ""))[1:])

    declared = {one.get("name") or one.get("argument")[2:] for one in tool.findall("inputs/param")}
    used = set(re.findall(r"\$(\w+)", tool.findtext("command"))) - {"GALAXY_SLOTS"}
    assert used | {"report_wanted"} == declared
    assert duallgd_cli.__version__ in tool.get("version")
    assert tool.find("requirements/requirement").get("version") == duallgd_cli.__version__


def test_the_image_has_what_the_package_needs_and_enough_for_the_wheel(tmp_path):
    """The steps of a build that need no daemon, in an empty folder."""
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    torch = next(need for need in PROJECT["dependencies"] if need.startswith("torch"))
    for words in (f'"{torch}"', "libxrender1 libxext6 libexpat1", "duallgd selftest"):
        assert words in docker
    copied = [line.split()[1:] for line in docker.splitlines() if line.startswith("COPY ")]
    for *sources, place in copied:
        for source in sources:
            found, target = ROOT / source, tmp_path / "src" / place
            if found.is_dir():
                shutil.copytree(found, target)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)

    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
            *("-w", tmp_path, tmp_path / "src"),
        ],
        check=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        assert "duallgd_cli/weights/duallgd.safetensors" in held.namelist()


def test_every_document_is_in_the_site():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    pages = [page for entry in nav for page in entry.values()]
    inner = chain.from_iterable(page for page in pages if isinstance(page, list))
    pages += [page for entry in inner for page in entry.values()]

    docs = ROOT / "docs"
    written = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert {page for page in pages if isinstance(page, str)} == written | {"commands.md"}


@pytest.mark.slow
def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    """What `make docs` does, in a copy; links lead to pages, or to files of the clone."""
    pytest.importorskip("material", reason="mkdocs-material, of the dev extra, is not installed")
    left_out = shutil.ignore_patterns("*.safetensors", "*.hashes", "*.jsonl", "*.log")
    for name in ("docs", "weights", "examples/workflow"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    for path in [
        *ROOT.glob("*.md"),
        *map(ROOT.joinpath, ("Makefile", "mkdocs.yml", "CITATION.cff")),
    ]:
        shutil.copy(path, tmp_path / path.name)
    shutil.copy(ROOT / "LICENSE", tmp_path)

    subprocess.run(
        ["make", "docs", "-o", "env", f"BIN={Path(sys.executable).parent}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )

    site = tmp_path / "build" / "site"
    broken = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text("utf-8")):
            target = page.parent / link
            if "://" in link or link.startswith(("/", "mailto:", "data:")):
                continue
            found = target / "index.html" if target.is_dir() else target
            beside = ROOT / os.path.relpath(target, site)
            if not found.exists() and not beside.exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []
    assert "duallgd predict" in (site / "commands" / "index.html").read_text("utf-8")


def test_one_version_everywhere():
    """The citation, the newest change and the classifiers are of the version that is installed."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changes = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    pythons = [line for line in PROJECT["classifiers"] if line.startswith("Programming Language")]

    assert cited["version"] == changes[0] == duallgd_cli.__version__
    assert cited["license"] == PROJECT["license"]["text"] == "MIT"
    assert PROJECT["requires-python"].removeprefix(">=") == pythons[0].rpartition(" ")[2]
    assert "Development Status :: 4 - Beta" in PROJECT["classifiers"]
