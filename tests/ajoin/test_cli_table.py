"""How rows look: columns line up, widths only grow, nothing is interpreted as markup."""

import io
from datetime import datetime

import pytest
from rich.console import Console

from ajoin.cli.inspect import size
from ajoin.cli.table import SCREENFUL, GrowingTable, cell, event_time


def printed(*batches: list[tuple[object, ...]], columns: tuple[str, ...] = ("id", "text")) -> list[str]:
    out = io.StringIO()
    table = GrowingTable(Console(file=out, width=100, highlight=False), columns)
    for batch in batches:
        table.add(batch)
    return out.getvalue().splitlines()


def test_columns_line_up_and_numbers_stand_right() -> None:
    assert printed([(1, "a"), (100, "bb"), (None, "c")]) == [
        "id    text",
        "────  ────",
        "   1  a",
        " 100  bb",
        "NULL  c",
    ]


def test_the_header_comes_again_only_when_the_widths_changed() -> None:
    lines = printed([(1, "a")], [(2, "b")], [(3, "something longer")])
    assert [line.split()[0] for line in lines if "─" not in line] == ["id", "1", "2", "id", "3"]


def test_the_header_comes_again_after_a_screenful() -> None:
    lines = printed([(i, "x") for i in range(SCREENFUL + 1)])
    assert sum(line.startswith("id") for line in lines) == 2


def test_values_are_never_markup() -> None:
    assert printed([(1, "[bold]x[/bold] [/]")])[-1].endswith("[bold]x[/bold] [/]")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        ("two\nlines", "two lines"),
        (datetime(2024, 1, 2, 3, 4, 5, 6000), "2024-01-02 03:04:05.006"),
    ],
)
def test_a_cell_is_one_line_for_people(value: object, text: str) -> None:
    assert cell(value) == text


def test_event_times_beyond_the_calendar_stay_numbers() -> None:
    assert event_time(None) == "-"
    assert event_time(1500) == "1970-01-01 00:00:01.500"
    assert event_time(1 << 62) == f"{1 << 62} ms"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 52, "4096.0 TiB"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert size(count) == text
