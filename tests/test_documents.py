"""The machinery that executes the pages: what must pass passes, and what must fail fails."""

from pathlib import Path

import pytest

from tools.documents import commands, pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def execute(folder: Path, text: str) -> int:
    """Execute a page that holds this text; how many examples it had."""
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    document = pages.parse(page)
    assert pages.setup is not None
    assert pages.teardown is not None
    pages.setup(document.namespace)
    try:
        examples = list(document.examples())
        for example in examples:
            example.evaluate()
    finally:
        pages.teardown(document.namespace)
    return len(examples)


GOOD = {
    "python shares its names with pycon": "```python\na = 3\n```\n\n```pycon\n>>> a\n3\n```\n",
    "numbers count as far as shown": "```pycon\n>>> 2 / 3\n0.667\n```\n",
    "an indented block with options": '=== "tab"\n\n    ```python title="x"\n    a = 1\n    ```\n',
    "a command with its output": "```console\n$ peephole --help\n...Usage...\n```\n",
    "a command that is refused": "```console\n$ peephole nonsense\n# exit status 2\n```\n",
    "make in a shell block": "```sh\nmake test\n```\n",
}
BAD = {
    "python that raises": "```python\n1 / 0\n```\n",
    "another output": "```pycon\n>>> 2 / 3\n0.668888\n```\n",
    "a command with another output": "```console\n$ peephole --help\nno such line\n```\n",
    "a command with another status": "```console\n$ peephole --help\n# exit status 2\n```\n",
    "a command of another program": "```console\n$ rm x\n```\n",
    "a console block without a prompt": "```console\npeephole --help\n```\n",
    "anything else in a shell block": "```sh\nrm x\n```\n",
    "a language that nothing executes": "```ruby\nputs 1\n```\n",
    "a block without a language": "```\nx\n```\n",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_true_page_passes(tmp_path: Path, text: str) -> None:
    """A page whose blocks do what it says passes, and each of its blocks was executed."""
    assert execute(tmp_path, text) >= 1


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_false_page_fails(tmp_path: Path, text: str) -> None:
    """A page that says something else than what happens fails."""
    with pytest.raises(Exception, match=r"(?s).+"):
        execute(tmp_path, text)


def test_inert_blocks_are_left_alone(tmp_path: Path) -> None:
    """Text, data and references are shown, not executed."""
    assert execute(tmp_path, "```text\nx\n```\n\n```bibtex\n@book{}\n```\n") == 0


def test_files_do_not_litter(tmp_path: Path) -> None:
    """What a block writes lands in a folder that is removed with the page."""
    execute(tmp_path, '```python\nopen("litter.txt", "w").close()\n```\n')
    assert not Path("litter.txt").exists()


def test_commands() -> None:
    """A console block splits into commands, each with its status and its output, over continued lines too."""
    source = "$ peephole a \\\n    --b\n# exit status 1\nno\n$ peephole c\n"
    assert list(commands(source)) == [("peephole a      --b", 1, "no\n"), ("peephole c", 0, "")]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_make_targets_exist(page: Path) -> None:
    """Every target that a shell block names stands in the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    targets = {line.partition(":")[0] for line in makefile if "## " in line}
    lines = page.read_text(encoding="utf-8").splitlines()
    named = {word for line in lines if line.startswith("make ") for word in line.split("#")[0].split()[1:]}
    assert {word for word in named if "=" not in word} <= targets
