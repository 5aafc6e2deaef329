"""The documentation says what is there: links lead somewhere, names exist, examples print what the page shows.

`python -m tests.tools.docs --write` refreshes the outputs. It cannot repair a sentence.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from ajoin.config import Settings
from ajoin.demo.data import QUERIES, STREAMS
from ajoin.replay import runner
from ajoin.replay.scenario import read
from ajoin.sql import parse_query
from runtime.engine.engine import Engine
from runtime.execution.executor import LocalExecutor
from tests.tools.docs import EXAMPLE, ROOT, refreshed, shape

PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
CODE = ("ajoin", "runtime", "optimizer", "tests", "experiments", "proto")
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
MACHINE = re.compile(r"(?<![\w./])/(?:work|home|root|tmp|Users|mnt|opt|var|private)/")
REASON = re.compile(r"`([A-Z]+(?:_[A-Z]+)+)`|`(UNREACHABLE)`")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Without fenced blocks: what looks like a link in them is none."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def relative_links(page: Path) -> list[tuple[str, Path, str]]:
    """(text, path, anchor)"""
    found = []
    for link in LINK.finditer(prose(page)):
        target, _, anchor = link["target"].partition("#")
        if "://" not in target:
            found.append((link["text"], (page.parent / target).resolve() if target else page, anchor))
    return found


def defined_in(module: Path) -> set[str]:
    nodes = ast.walk(ast.parse(text_of(module)))
    return {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/semantics.md"])
def test_the_pages_a_newcomer_looks_for_are_there(name: str) -> None:
    assert (ROOT / name) in PAGES


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for text, path, anchor in relative_links(page):
        assert path.exists(), f"[{text}] leads to {path}, which does not exist"
        assert path.is_relative_to(ROOT), f"[{text}] leads out of the project"
        assert not anchor or anchor in anchors(path), f"{path.name} has no heading #{anchor}"


@pages
def test_linked_names_are_defined_in_the_linked_module(page: Path) -> None:
    for text, path, _ in relative_links(page):
        if path.suffix == ".py" and (name := re.fullmatch(r"`(\w+)`", text)):
            assert name[1] in defined_in(path), f"{path.name} defines no {name[1]}"


@pages
def test_files_named_in_the_text_exist(page: Path) -> None:
    for name in re.findall(rf"`((?:{'|'.join(CODE)})/[\w/.]*\w)`", prose(page)):
        assert (ROOT / name).exists(), f"there is no {name}"


@pages
def test_no_page_names_a_place_on_somebodys_machine(page: Path) -> None:
    found = MACHINE.search(text_of(page))
    assert found is None, text_of(page)[found.start() : found.start() + 60] if found else ""


@pytest.mark.parametrize("name", ["README.md", "docs/operations.md"])
def test_reasons_exist_in_the_code(name: str) -> None:
    code = "".join(text_of(p) for package in ("ajoin", "runtime", "optimizer") for p in (ROOT / package).rglob("*.py"))
    reasons = {a or b for a, b in REASON.findall(prose(ROOT / name)) if not (a or b).startswith("AJOIN_")}
    assert {r for r in reasons if f'"{r}"' not in code} == set()


def test_every_setting_is_in_the_table_with_its_default() -> None:
    section = text_of(ROOT / "docs/operations.md").split("## Configuration")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE))
    assert set(listed) == set(Settings.model_fields), "the table in docs/operations.md lists every setting"
    spoken = {"partitions": "number of cores", "allowed_roots": "empty"}
    for name, field in Settings.model_fields.items():
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        assert listed[name] == spoken.get(name, f"`{default}`" if default not in ("", ()) else "empty")


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/decisions"
    linked = {path.name for _, path, _ in relative_links(folder / "README.md")}
    assert linked == {p.name for p in folder.glob("0*.md")}


def test_the_architecture_page_names_every_room() -> None:
    linked = {path for _, path, _ in relative_links(ROOT / "docs/architecture.md")}
    rooms = {p.parent for layer in ("ajoin", "runtime", "optimizer") for p in (ROOT / layer).glob("*/__init__.py")}
    assert rooms and rooms - linked == set()


@pytest.mark.parametrize("page", [p for p in PAGES if EXAMPLE.search(text_of(p))], ids=lambda p: p.name)
def test_examples_print_what_the_page_shows(page: Path) -> None:
    """If this fails because the output is better now: python -m tests.tools.docs --write"""
    assert shape(refreshed(text_of(page))) == shape(text_of(page))


def test_the_readme_begins_with_two_queries_of_the_demo_and_the_plan_that_serves_both() -> None:
    first_screen = text_of(ROOT / "README.md").split("\n## ")[0]
    shown = [re.sub(r"^--.*\n", "", sql).strip() for sql in re.findall(r"```sql\n(.*?)```", first_screen, re.DOTALL)]
    assert shown == [q.sql for q in QUERIES[:2]]
    schemas = {s.name: s.schema for s in STREAMS}
    assert all(parse_query(sql, schemas).equi for sql in shown)
    assert "shared by 2" in first_screen and "→ Q1" in first_screen and "→ Q2" in first_screen


def test_the_replayed_scenario_gives_the_rows_shown(tmp_path: Path) -> None:
    page = text_of(ROOT / "docs/operations.md")
    scenario, rows = re.findall(r"^```jsonl\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "scenario.jsonl").write_text(scenario, encoding="utf-8")
    runner.run(
        read(tmp_path / "scenario.jsonl"),
        tmp_path / "out",
        lambda: Engine.open(tmp_path / "state", LocalExecutor()),
    )
    delivered = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in delivered.splitlines()] == [json.loads(line) for line in rows.splitlines()]
