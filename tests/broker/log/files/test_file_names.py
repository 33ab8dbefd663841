"""Names of files in a partition's directory."""

from __future__ import annotations

from fencepost.broker.log.files.file_names import file_name, lost_path


def test_an_offset_has_twenty_digits_so_that_names_sort_like_offsets() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert file_name(2**63 - 1, ".log") == "09223372036854775807.log"
    assert file_name(9, ".log") < file_name(10, ".log") < file_name(2**62, ".log")


def test_lost_bytes_are_kept_beside_their_file_with_their_position() -> None:
    assert lost_path("/d/t-0/00000000000000000042.log", 1_234) == "/d/t-0/00000000000000000042.log.lost-1234"
