"""Records: the annotations of a class are the format of its lines; errors name the field and the line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lioncub.records import Amount, Count, Plain, from_json, from_line, to_json, to_line
from lioncub.tools.compare.records import parse_cell
from lioncub.tools.reporting.lines import finished_lines
from lioncub.tools.study.records import parse_run

PUBLISHED = Path(__file__).parents[1] / "docs" / "records"


@dataclass(frozen=True, kw_only=True)
class Part:
    seconds: Amount


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    count: Count
    parts: tuple[Part, ...] = ()
    table: dict[str, Plain]
    loss: float | None = None


WHOLE = Whole(name="ä", count=3, parts=(Part(seconds=0.5), Part(seconds=0)), table={"a": 1, "b": 2.0, "c": None})
VALUES: dict[str, Any] = json.loads(to_json(WHOLE))


def test_a_record_is_read_as_it_was_written_and_what_is_more_is_passed_over() -> None:
    line = to_line("whole", WHOLE, more=1)
    assert line == '{"kind": "whole", ' + to_json(WHOLE, more=1)[1:]
    assert from_line(line, {"whole": Whole}, "a whole") == WHOLE
    assert to_json(from_json(line, Whole)) == to_json(WHOLE).replace('"seconds": 0}', '"seconds": 0.0}')


def test_what_is_not_finite_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(WHOLE, loss=math.inf)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"count": 3.5}, r"Expected `int`, got `float` - at `\$.count`"),
        ({"count": True}, r"Expected `int`, got `bool` - at `\$.count`"),
        ({"count": -1}, r"Expected `int` >= 0 - at `\$.count`"),
        ({"name": None}, r"Expected `str`, got `null` - at `\$.name`"),
        ({"name": "\ud800"}, "truncated|surrogate"),
        ({"table": {"a": []}}, r"got `array` - at `\$.table"),
        ({"loss": math.nan}, "malformed"),
        ({"parts": [{"seconds": "1"}]}, r"Expected a number, got str - at `\$.parts\[0\].seconds`"),
        ({"parts": [{"seconds": True}]}, r"Expected a number, got bool - at `\$.parts\[0\].seconds`"),
        ({"parts": [{"seconds": 5e-324}]}, r"Expected 0 or a number from 1e-15 to 1e\+15 - at `\$.parts\[0\].seconds`"),
        ({"parts": [{"seconds": 10**400}]}, r"Expected 0 or a number .* - at `\$.parts\[0\].seconds`"),
        ({"parts": [{}]}, r"missing required field `seconds` - at `\$.parts\[0\]`"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        from_json(json.dumps(VALUES | change), Whole)


@pytest.mark.parametrize("line", ["", "[]", "7", '{"kind": 1}', '{"kind": "part"}', '{"kind": "whole"}', "[" * 100_000])
def test_lines_of_other_kinds_are_shown_with_their_beginning(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a whole: .*: '.{,80}'$"):
        from_line(line, {"whole": Whole}, "a whole")


def test_escape_sequences_are_shown_and_not_sent() -> None:
    with pytest.raises(ValueError, match=r"\\x1b\[31m") as caught:
        from_line('{"kind": "\x1b[31m"}', {"whole": Whole}, "a whole")
    assert "\x1b" not in str(caught.value)
    with pytest.raises(ValueError, match=r"kind '\\x1b\[31m'") as caught:
        from_line(json.dumps({"kind": "\x1b[31m"}), {"whole": Whole}, "a whole")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("**/*.jsonl")), ids=lambda path: path.name)
def test_published_records_are_loaded_and_written_with_the_same_values(path: Path) -> None:
    for _, line in finished_lines(path):
        values = json.loads(line)
        if values.get("kind") in ("cell", "run"):
            record = parse_cell(line) if values["kind"] == "cell" else parse_run(line)
            written = json.loads(record.to_json())
            specs = [each.pop("spec", {}) for each in (values, written)]
            assert values.items() <= written.items()  # the first records lack what has come since
            assert specs[0].items() <= specs[1].items()
