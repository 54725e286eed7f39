"""README and docs are short and plain, their commands exist, and their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.cli import get_docs_for_click

from duallgd_cli.cli import app

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = ("*.md", "docs/**/*.md", "weights/**/*.md", "examples/**/*.md", "plugins/*/*.md")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
PAGES = [ROOT / "README.md", *(path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs"))]
PAGE_BYTES, MOST_BYTES = 6_144, {"README.md": 7_168, "speed.md": 4_096}
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
every_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def commands(text):
    """The words after ``duallgd`` of every command in code, lines that go on joined."""
    for code in _CODE.findall(text.replace("\\\n", " ")):
        for found in _COMMAND.finditer(code):
            # A subshell and an ellipsis are no words of the command.
            yield [word for word in shlex.split(found["line"].rstrip(" )")) if word != "..."]


def parse(words):
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


def every_command(command=None, name="duallgd"):
    """Each command, groups too, with its full name."""
    command = command or typer.main.get_command(app)
    yield name, command
    for inner, below in getattr(command, "commands", {}).items():
        yield from every_command(below, f"{name} {inner}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_short_and_in_plain_words(path):
    text = path.read_text(encoding="utf-8")

    assert len(text.encode()) <= MOST_BYTES.get(path.name, PAGE_BYTES)
    assert PRIVATE.findall(_CODE.sub("", text)) == []


def test_help_is_in_plain_words_and_its_page_has_all_commands_and_options():
    """The page is what `make docs` writes as ``commands.md``, by the same function of Typer."""
    named = dict(every_command())
    page = get_docs_for_click(
        obj=named["duallgd"], ctx=typer.Context(named["duallgd"]), name="duallgd"
    )
    sections = re.findall(r"^#+ `([\w -]+)`\n(.*?)(?=^#+ `|\Z)", page, re.MULTILINE | re.DOTALL)
    shown = {name: set(re.findall(r"(?<=[` /])-[\w-]+", text)) for name, text in sections}
    missing, private = [], []
    for name, command in named.items():
        helps = [command.help, command.epilog, *(getattr(p, "help", "") for p in command.params)]
        private += PRIVATE.findall(re.sub("`.*?`", "", " ".join(filter(None, helps))))
        options = {word for option in command.params for word in option.opts if word[:1] == "-"}
        missing += [f"{name} {word}" for word in options - shown.get(name, set())]

    assert "docs --name duallgd --output build/docs/commands.md" in (ROOT / "Makefile").read_text()
    assert len(named) > 15
    assert set(shown) == set(named)
    assert (missing, private) == ([], [])


def test_the_messages_that_a_page_explains_are_those_of_the_program():
    source = "".join(path.read_text("utf-8") for path in (ROOT / "duallgd_cli").rglob("*.py"))
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| (?:most .*?)?`([^`]+)`", page, re.MULTILINE)

    assert len(quoted) > 15
    assert [words for words in quoted if words not in source and not words.startswith("--")] == []


@every_document
def test_its_commands_exist_with_their_options(path):
    for words in commands(path.read_text(encoding="utf-8")):
        parse(words)


@every_document
def test_its_links_and_paths_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    linked = [link for link in _LINK.findall(text) if "://" not in link[0]]
    targets = [(path.parent / name if name else path, anchor) for name, anchor in linked]
    targets += [(ROOT / name, "") for name in _PATH.findall(text)]

    assert [str(target) for target, _ in targets if not target.exists()] == []
    for target, anchor in targets:
        if anchor and target.suffix == ".md":  # the headings, as the site makes ids of them
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            bare = (re.sub(r"[^\w -]", "", line).strip().lower() for line in headings)
            assert anchor in {line.replace(" ", "-") for line in bare}, target


def test_wrong_commands_are_noticed():
    text = (
        "    cat a.mgf | duallgd predict - -o - \\\n      --formula C9H8O4 | sort\n`duallgd info`\n"
    )

    assert list(commands(text)) == [["predict", "-", "-o", "-", "--formula", "C9H8O4"], ["info"]]
    for wrong in (["predict", "a.mgf", "--samplse", "5"], ["guess"], ["database", "lst"]):
        with pytest.raises(Exception, match=r"samplse|guess|lst"):
            parse(wrong)
