"""README and docs are short and plain, their commands exist, and their links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.cli import get_docs_for_click

from duallgd_cli.cli import app

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "weights/**/*.md", "examples/**/*.md", "plugins/*/*.md")
    for path in ROOT.glob(pattern)
)
PAGES = [ROOT / "README.md", *(path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs"))]
PAGE_BYTES = 6_144
MOST_BYTES = {"README.md": 7_168, "speed.md": 4_096}
# Words of the makers that no user has, and of a diary; what stands in code is a name.
PRIVATE = re.compile(
    r"\b(by hand|fold val|releases? \d+|as asked for|re-?rankers?|rivals?|judges?|likeliest"
    r"|cheapest|not yet|so far|today)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"^```.*?^```|^(?: {4}[^\n]*\n)+|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|[|;&`] ?|\s{4}|taskset -c 0 )duallgd (?P<line>[^`|;>#\n]*)")
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
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


def anchors(path: Path) -> set[str]:
    """What a link may name after ``#``: the headings, as the site makes ids of them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in headings}


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command, its options and its own commands, as one text each."""
    options = (getattr(option, "help", None) for option in command.params)
    yield name, " ".join(text or "" for text in (command.help, command.epilog, *options))
    for inner, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{name} {inner}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_short_and_in_plain_words(path):
    text = path.read_text(encoding="utf-8")

    assert len(text.encode()) <= MOST_BYTES.get(path.name, PAGE_BYTES)
    assert PRIVATE.findall(_CODE.sub("", text)) == []


def test_help_is_in_plain_words():
    texts = dict(helps(typer.main.get_command(app), "duallgd"))

    private = {name for name, text in texts.items() if PRIVATE.search(re.sub("`.*?`", "", text))}

    assert len(texts) > 15
    assert private == set()


def test_the_page_of_commands_has_a_section_for_each_with_all_its_options():
    """What `make docs` writes as ``commands.md``, by the same function of Typer."""
    command = typer.main.get_command(app)
    page = get_docs_for_click(obj=command, ctx=typer.Context(command), name="duallgd")
    sections = dict(
        re.findall(r"^#+ `([\w -]+)`\n(.*?)(?=^#+ `|\Z)", page, re.MULTILINE | re.DOTALL)
    )

    def missing(inner: Any, name: str) -> Iterator[str]:
        words = (word for option in inner.params for word in option.opts if word[:1] == "-")
        shown = set(re.findall(r"(?<=[` /])-[\w-]+", sections[name]))
        yield from (f"{name} {word}" for word in words if word not in shown)
        for inmost, below in getattr(inner, "commands", {}).items():
            yield from missing(below, f"{name} {inmost}")

    assert "docs --name duallgd --output build/docs/commands.md" in (ROOT / "Makefile").read_text()
    assert set(sections) == {name for name, _ in helps(command, "duallgd")}
    assert list(missing(command, "duallgd")) == []


def test_the_messages_that_a_page_explains_are_those_of_the_program():
    source = "".join(path.read_text("utf-8") for path in (ROOT / "duallgd_cli").rglob("*.py"))
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| (?:most .*?)?`([^`]+)`", page, re.MULTILINE)

    assert len(quoted) > 15
    assert [words for words in quoted if words not in source and not words.startswith("--")] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_its_commands_exist_with_their_options(path):
    for words in commands(path.read_text(encoding="utf-8")):
        parse(words)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_its_links_and_paths_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    linked = [link for link in _LINK.findall(text) if "://" not in link[0]]
    targets = [(path.parent / name if name else path, anchor) for name, anchor in linked]
    named = [ROOT / name for name in _PATH.findall(text)]

    assert [str(target) for target in [t for t, _ in targets] + named if not target.exists()] == []
    assert [
        f"{target.name}#{anchor}"
        for target, anchor in targets
        if anchor and target.suffix == ".md" and anchor not in anchors(target)
    ] == []


def test_wrong_commands_are_noticed():
    text = (
        "    cat a.mgf | duallgd predict - -o - \\\n      --formula C9H8O4 | sort\n`duallgd info`\n"
    )

    assert list(commands(text)) == [["predict", "-", "-o", "-", "--formula", "C9H8O4"], ["info"]]
    for wrong in (["predict", "a.mgf", "--samplse", "5"], ["guess"], ["database", "lst"]):
        with pytest.raises(Exception, match=r"samplse|guess|lst"):
            parse(wrong)
