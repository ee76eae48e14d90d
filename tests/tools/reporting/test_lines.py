"""Records, one a line."""

from __future__ import annotations

from pathlib import Path

from lioncub.tools.reporting.lines import append_line, finished_lines


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_line(path, '{"a": "ä"}')
    append_line(path, '{"b": 2}')
    assert list(finished_lines(path)) == [(1, '{"a": "ä"}'), (2, '{"b": 2}')]


def test_a_last_record_without_its_line_break_counts(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}')
    assert list(finished_lines(path)) == [(1, '{"a": 1}'), (2, '{"b": 2}')]
    append_line(path, '{"c": 3}')
    assert path.read_text() == '{"a": 1}\n{"b": 2}\n{"c": 3}\n'


def test_what_a_crash_left_of_a_line_is_neither_read_nor_written_to(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for left in ('{"a": 1}\n\n{"b"', '{"a": 1}\n\n'):
        path.write_text(left)
        assert list(finished_lines(path)) == [(1, '{"a": 1}')]
        append_line(path, '{"c": 3}')
        assert path.read_text() == '{"a": 1}\n\n{"c": 3}\n'
    path.write_text('{"never a whole l')
    append_line(path, '{"c": 3}')
    assert path.read_text() == '{"c": 3}\n'
