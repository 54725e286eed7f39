"""Recipes for other engines and packagers say what the program and pyproject.toml say."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from lxml import etree

import duallgd_cli
from tests.test_documents import parse

ROOT = Path(__file__).resolve().parents[1]
NEXTFLOW = ROOT / "examples" / "workflow" / "nextflow"
GALAXY = ROOT / "examples" / "galaxy" / "duallgd_predict.xml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


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


@pytest.mark.parametrize("name", ["predict", "merge"])
def test_the_nextflow_modules_call_options_that_exist(name):
    text = (NEXTFLOW / "modules" / "local" / "duallgd" / name / "main.nf").read_text("utf-8")
    called = re.search(rf"^ *duallgd ({name} .*?)\n\n", text, re.DOTALL | re.MULTILINE)[1]

    parse([word for word in shlex.split(called.replace("\\\\\n", " ")) if word != "${args}"])

    assert text.count("{") == text.count("}")
    assert f"DUALLGD_{name.upper()}" in (NEXTFLOW / "main.nf").read_text("utf-8")


def test_containers_install_the_same():
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    apptainer = (ROOT / "duallgd.def").read_text("utf-8")
    torch = next(need for need in PROJECT["dependencies"] if need.startswith("torch"))

    for words in (f'"{torch}"', "libxrender1 libxext6 libexpat1", "duallgd selftest"):
        assert words in docker
        assert words in apptainer


def test_every_document_is_in_the_site():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    pages = {page for entry in nav for page in entry.values()}

    assert pages == {path.name for path in (ROOT / "docs").glob("*.md")} | {
        "index.md",
        "commands.md",
    }
