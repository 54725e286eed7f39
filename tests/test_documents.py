"""README and docs are short enough, their commands exist, and their links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from duallgd_cli.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "weights/**/*.md", "examples/**/*.md", "plugins/*/*.md")
    for path in ROOT.glob(pattern)
)
README_BYTES = 10_240
_CODE = re.compile(r"^```.*?^```|^(?: {4}[^\n]*\n)+|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|[|;&`] ?|\s{4}|taskset -c 0 )duallgd (?P<line>[^`|;>#\n]*)")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_PATH = re.compile(r"`((?:docs|duallgd_cli|examples|plugins|tests|weights)/[\w./-]+)`")


def commands(text: str) -> Iterator[list[str]]:
    """The words after ``duallgd`` of every command in code, lines that go on joined."""
    for code in _CODE.findall(text.replace("\\\n", " ")):
        for found in _COMMAND.finditer(code):
            # A subshell and an ellipsis are no words of the command.
            yield [word for word in shlex.split(found["line"].rstrip(" )")) if word != "..."]


def parse(words: list[str]) -> None:
    """Refuse a command or an option that does not exist, without running anything."""
    command = typer.main.get_command(app)
    context = command.context_class(command, info_name="duallgd")
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not rest or not hasattr(command, "get_command"):
            return
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"there is no command {rest[0]!r}"
        context = inner.context_class(inner, info_name=rest[0], parent=context)
        command, words = inner, rest[1:]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= README_BYTES


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_its_commands_exist_with_their_options(path):
    for words in commands(path.read_text(encoding="utf-8")):
        parse(words)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_its_links_and_paths_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    linked = [path.parent / link for link in _LINK.findall(text) if "://" not in link]
    named = [ROOT / name for name in _PATH.findall(text)]

    assert [str(target) for target in linked + named if not target.exists()] == []


def test_wrong_commands_are_noticed():
    text = (
        "    cat a.mgf | duallgd predict - -o - \\\n      --formula C9H8O4 | sort\n`duallgd info`\n"
    )

    assert list(commands(text)) == [["predict", "-", "-o", "-", "--formula", "C9H8O4"], ["info"]]
    for wrong in (["predict", "a.mgf", "--samplse", "5"], ["guess"], ["data", "structurs"]):
        with pytest.raises(Exception, match=r"samplse|guess|structurs"):
            parse(wrong)
