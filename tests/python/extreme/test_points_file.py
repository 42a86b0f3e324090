"""What the reader of point files accepts and rejects."""

from __future__ import annotations

import gzip
import os
import pathlib
import pickle
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joinsum import extreme
from points_files import Written, assert_holds, load_text, many_points, written_files


@given(written_files())
def test_what_is_written_is_read_plain_and_compressed(
    tmp_path_factory: pytest.TempPathFactory, written: Written
) -> None:
    path = tmp_path_factory.mktemp("written") / "points"
    for encode in (bytes, gzip.compress):
        path.write_bytes(encode(written.text.encode()))
        points = extreme.load(path)
        assert_holds(points, written)
        for row, point in enumerate(extreme.read_points(path)):
            assert (point.labels.tolist(), point.features.tolist()) == (
                written.points[row][0],
                list(written.points[row][1]),
            )


def test_arrays_have_the_documented_types(tmp_path: pathlib.Path) -> None:
    for text in ("1 2 2\n0 1:3\n", "0 0 0\n"):
        points = load_text(tmp_path, text)
        assert points.indptr.dtype == points.label_indptr.dtype == np.int64
        assert points.indices.dtype == points.label_indices.dtype == np.int32
        assert points.values.dtype == np.float32


def test_a_line_that_begins_with_a_blank_has_no_labels(tmp_path: pathlib.Path) -> None:
    points = load_text(tmp_path, "3 2 2\n 0:1\n0 1:1\n \n")
    assert points.label_indptr.tolist() == [0, 0, 1, 1]
    assert points.indptr.tolist() == [0, 1, 2, 2]


def test_a_line_may_have_no_features(tmp_path: pathlib.Path) -> None:
    assert load_text(tmp_path, "2 2 2\n0,1\n1 \n").indptr.tolist() == [0, 0, 0]


def test_an_explicit_zero_is_stored(tmp_path: pathlib.Path) -> None:
    assert load_text(tmp_path, "1 3 1\n0 2:0 1:0.0 0:-0e0\n").values.tolist() == [0.0, 0.0, 0.0]


def test_features_keep_the_order_of_their_line(tmp_path: pathlib.Path) -> None:
    points = load_text(tmp_path, "1 9 9\n5,2,8 7:1e-1 0:2.5E+1 3:-.5\n")
    assert points.label_indices.tolist() == [5, 2, 8]
    assert points.indices.tolist() == [7, 0, 3]
    assert points.values.tolist() == pytest.approx([0.1, 25.0, -0.5])


def test_a_file_of_several_gzip_members_is_one_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "points.txt"
    path.write_bytes(gzip.compress(b"2 2 2\n0 0:1\n") + gzip.compress(b"1 1:2\n"))
    assert extreme.load(path).indices.tolist() == [0, 1]


def test_content_decides_about_compression_and_not_the_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain.gz").write_bytes(b"1 1 1\n0 0:1\n")
    (tmp_path / "compressed.txt").write_bytes(gzip.compress(b"1 1 1\n0 0:1\n"))
    assert len(extreme.load(tmp_path / "plain.gz")) == len(extreme.load(str(tmp_path / "compressed.txt"))) == 1


# --- malformed files --------------------------------------------------------------------------------------------------

GOOD = b"3 5 4\n0,1 0:1 4:0.5\n 2:1\n3\n"
LONG = b"9" * 5000  # more digits than int() takes

MALFORMED = {
    # claim: (content, line, reason)
    "empty file": (b"", 1, "file is empty: bytes=0"),
    "empty gzip file": (gzip.compress(b""), 1, "file is empty: bytes=0"),
    "blank header": (b"\n", 1, "header is not `points features labels`: fields=0, header=''"),
    "header of two fields": (b"3 5\n0 0:1\n", 1, "header is not `points features labels`: fields=2, header='3 5'"),
    "header of four fields": (b"1 2 3 4\n", 1, "header is not `points features labels`: fields=4, header='1 2 3 4'"),
    "no header": (b"0 1:0.5 2:1.0\n", 1, "header is not three integers: features='1:0.5'"),
    "fraction in header": (b"1 2.0 3\n", 1, "header is not three integers: features='2.0'"),
    "underscore in header": (b"1_0 2 3\n", 1, "header is not three integers: points='1_0'"),
    "negative size": (b"1 2 -3\n", 1, "header is out of range: labels=-3, limit=2147483647"),
    "size above int32": (b"1 2147483648 3\n", 1, "header is out of range: features=2147483648, limit=2147483647"),
    "points without features": (
        b"1 0 2\n0\n",
        1,
        "header promises points without features or labels: points=1, features=0, labels=2",
    ),
    "points without labels": (
        b"1 2 0\n 0:1\n",
        1,
        "header promises points without features or labels: points=1, features=2, labels=0",
    ),
    "endless header": (b"1" * 5000, 1, f"line is too long: limit=256, begins='{'1' * 37}...'"),
    "byte order mark": (b"\xef\xbb\xbf1 1 1\n0\n", 1, "byte is not ASCII: byte=0xef, column=1"),
    "label too large": (b"2 5 4\n0\n1,4 0:1\n", 3, "label is out of range: label=4, labels=4"),
    "negative label": (b"1 5 4\n-1 0:1\n", 2, "label is out of range: label=-1, labels=4"),
    "label of 5000 digits": (b"1 5 99\n" + LONG + b"\n", 2, f"label is out of range: label={'9' * 40}, labels=99"),
    "label not an integer": (b"1 5 4\n1.0 0:1\n", 2, "label is not an integer: label='1.0'"),
    "label with an underscore": (b"1 5 40\n1_0 0:1\n", 2, "label is not an integer: label='1_0'"),
    "feature where labels belong": (b"1 5 4\n0:1 1:1\n", 2, "label is not an integer: label='0:1'"),
    "empty label": (b"1 5 4\n1,,2 0:1\n", 2, "label is not an integer: label=''"),
    "comma after the last label": (b"1 5 4\n1, 0:1\n", 2, "label is not an integer: label=''"),
    "label twice": (b"1 5 4\n2,1,2 0:1\n", 2, "label occurs twice: label=2"),
    "label twice in two spellings": (b"1 5 4\n2,02 0:1\n", 2, "label occurs twice: label=2"),
    "feature too large": (b"1 5 4\n0 5:1\n", 2, "feature is out of range: feature=5, features=5"),
    "feature above int32": (b"1 5 4\n0 4294967296:1\n", 2, "feature is out of range: feature=4294967296, features=5"),
    "negative feature": (b"1 5 4\n0 1:1 -2:1\n", 2, "feature is out of range: feature=-2, features=5"),
    "feature not an integer": (b"1 5 4\n0 x:1\n", 2, "feature is not an integer: feature='x'"),
    "feature with an exponent": (b"1 50 4\n0 1e1:1\n", 2, "feature is not an integer: feature='1e1'"),
    "empty feature": (b"1 5 4\n0 :1\n", 2, "feature is not an integer: feature=''"),
    "feature twice": (b"1 5 4\n0 3:1 1:1 3:1\n", 2, "feature occurs twice: feature=3"),
    "no colon": (b"1 5 4\n0 3:1 2\n", 2, "feature is not `index:value`: colons=0, feature='2'"),
    "labels apart": (b"1 5 4\n0, 1 3:1\n", 2, "label is not an integer: label=''"),
    "two colons": (b"1 5 4\n0 3:1:2\n", 2, "feature is not `index:value`: colons=2, feature='3:1:2'"),
    "colons that only add up": (b"1 5 4\n0 1:2:3 4\n", 2, "feature is not `index:value`: colons=2, feature='1:2:3'"),
    "blank after colon": (b"1 5 4\n0 3: 1\n", 2, "feature has no value: feature=3"),
    "empty value": (b"1 5 4\n0 1:1 3:\n", 2, "feature has no value: feature=3"),
    "value not a number": (b"1 5 4\n0 3:abc\n", 2, "value is not a number: feature=3, value='abc'"),
    "value with an underscore": (b"1 5 4\n0 3:1_0\n", 2, "value is not a number: feature=3, value='1_0'"),
    "value with a decimal comma": (b"1 5 4\n0 3:0,5\n", 2, "value is not a number: feature=3, value='0,5'"),
    "value with a stray return": (
        b"1 5 4\n0 3:1\r4:1\n",
        2,
        "feature is not `index:value`: colons=2, feature='3:1\\r4:1'",
    ),
    "half an exponent": (b"1 5 4\n0 3:1e-\n", 2, "value is not a number: feature=3, value='1e-'"),
    "value nan": (b"1 5 4\n0 3:nan\n", 2, "value is not finite: feature=3, value=nan"),
    "value inf": (b"1 5 4\n0 3:-Inf\n", 2, "value is not finite: feature=3, value=-Inf"),
    "value above float64": (b"1 5 4\n0 3:1e999\n", 2, "value does not fit float32: feature=3, value=1e999"),
    "value above float32": (b"1 5 4\n0 3:-1e39\n", 2, "value does not fit float32: feature=3, value=-1e39"),
    "byte not ASCII": (b"2 5 4\n0\n0 3:1\xc3\xa9\n", 3, "byte is not ASCII: byte=0xc3, column=6"),
    "zero byte": (b"1 5 4\n0 3:1\0\n", 2, "value is not a number: feature=3, value='1\\x00'"),
    "header only": (b"3 5 4\n", 2, "fewer points than the header promises: promised=3, found=0"),
    "a line too few": (b"3 5 4\n0\n1\n", 4, "fewer points than the header promises: promised=3, found=2"),
    "a line too few and a blank one": (
        b"3 5 4\n0\n1\n\n\n",
        4,
        "fewer points than the header promises: promised=3, found=2",
    ),
    "a line too many": (GOOD + b"2 1:1\n", 5, "more points than the header promises: promised=3, extra='2 1:1'"),
    "a line after a blank one": (GOOD + b"\n2\n", 6, "more points than the header promises: promised=3, extra='2'"),
    "blank line between points": (b"2 5 4\n0\n\n1\n", 3, "blank line between points: promised=2, found=1"),
    "line longer than any point": (
        b"1 5 4\n" + b"0 3:" + b"1" * 6000,
        2,
        f"line is too long: limit=4672, begins='0 3:{'1' * 33}...'",
    ),
    "truncated gzip": (
        gzip.compress(GOOD)[:-6],
        1,
        "gzip stream is truncated: cause='Compressed file ended before the end-of-stream marker was reached'",
    ),
    "gzip magic only": (
        b"\x1f\x8b",
        1,
        "gzip stream is truncated: cause='Compressed file ended before the end-of-stream marker was reached'",
    ),
    "gzip of another method": (
        b"\x1f\x8b\x07" + gzip.compress(GOOD)[3:],
        1,
        "gzip stream is corrupt: cause='Unknown compression method'",
    ),
    "gzip magic and text": (b"\x1f5 4\n", 1, """gzip stream is corrupt: cause="Not a gzipped file (b'\\\\x1f5')\""""),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_rejected_with_its_line_and_reason(tmp_path: pathlib.Path, name: str) -> None:
    content, line, reason = MALFORMED[name]
    path = tmp_path / "points"
    path.write_bytes(content)
    with pytest.raises(extreme.DataError) as raised:
        extreme.load(path)
    assert str(raised.value) == f"{path}:{line}: {reason}"
    assert (raised.value.path, raised.value.line, raised.value.reason) == (str(path), line, reason)


def test_the_file_that_malformed_files_vary_is_correct(tmp_path: pathlib.Path) -> None:
    assert len(load_text(tmp_path, GOOD.decode())) == 3


def test_a_gzip_stream_that_breaks_off_late_is_rejected(tmp_path: pathlib.Path) -> None:
    path, whole = tmp_path / "points", gzip.compress(many_points(5000))
    for missing in (1, 8, 1000):
        path.write_bytes(whole[:-missing])
        with pytest.raises(extreme.DataError, match=r"points:\d+: gzip stream is truncated: cause="):
            extreme.load(path)


def test_a_gzip_stream_with_a_wrong_checksum_is_rejected(tmp_path: pathlib.Path) -> None:
    path, whole = tmp_path / "points", bytearray(gzip.compress(many_points(5000)))
    whole[-8] ^= 1
    path.write_bytes(whole)
    with pytest.raises(extreme.DataError, match=r"points:\d+: gzip stream is corrupt: cause='CRC check failed"):
        extreme.load(path)


def test_a_gzip_stream_with_a_wrong_byte_is_rejected(tmp_path: pathlib.Path) -> None:
    path, whole = tmp_path / "points", bytearray(gzip.compress(many_points(5000)))
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(extreme.DataError):
        extreme.load(path)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_file_is_read_or_rejected_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from([GOOD, gzip.compress(GOOD, mtime=0)])))
    alphabet = st.integers(0, 255) | st.sampled_from(list(b"0123456789:, .-+eE_\t\r\n\0"))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(alphabet)
    path = tmp_path_factory.mktemp("damaged") / "points"
    path.write_bytes(content)
    try:
        points = extreme.load(path)
    except extreme.DataError:
        return
    assert np.isfinite(points.values).all()
    for indices, size in ((points.indices, points.header.features), (points.label_indices, points.header.labels)):
        assert ((indices >= 0) & (indices < size)).all()


@given(st.text("0123456789:, .-+eE_\t\rnaif", max_size=12))
def test_an_unusual_spelling_never_changes_what_a_line_means(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """Doubled blanks lead a line past the fast reader, so both readers must say the same."""
    folder = tmp_path_factory.mktemp("spelled")
    outcomes: list[object] = []
    for line in (f"1 4:1 {text}".rstrip(), f"1  4:1 {text}".rstrip()):
        try:
            points = load_text(folder, f"1 1000 4\n{line}\n")
            outcomes.append([points.indices.tolist(), points.values.tolist(), points.label_indices.tolist()])
        except extreme.DataError as error:
            outcomes.append(error.reason)
    assert outcomes[0] == outcomes[1]


def test_a_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        extreme.load(tmp_path / "nowhere.txt")


def test_a_directory_is_rejected(tmp_path: pathlib.Path) -> None:
    with pytest.raises(extreme.DataError) as raised:
        extreme.load(tmp_path)
    assert str(raised.value) == f"{tmp_path}:0: path is not a file: kind=directory"


def test_a_data_error_is_a_value_error_that_survives_pickling() -> None:
    error = extreme.DataError("train.txt", 7, "label occurs twice: label=2")
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == "train.txt:7: label occurs twice: label=2"


# --- streaming --------------------------------------------------------------------------------------------------------


def test_the_first_point_is_read_before_the_second_is_written(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first_point_read = threading.Event()
    in_time: list[bool] = []

    def write() -> None:
        with open(pipe, "wb", buffering=0) as file:
            file.write(b"2 3 2\n0 1:1\n")
            in_time.append(first_point_read.wait(timeout=20))
            file.write(b"1 2:1\n")

    writer = threading.Thread(target=write)
    writer.start()
    stream = extreme.read_points(pipe)
    assert stream.header == extreme.Header(points=2, features=3, labels=2)
    assert next(stream).features.tolist() == [1]
    first_point_read.set()
    assert [point.features.tolist() for point in stream] == [[2]]
    writer.join()
    assert in_time == [True]


@pytest.mark.parametrize("encode", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_reading_points_needs_memory_for_one_line_only(
    tmp_path: pathlib.Path, encode: Callable[[bytes], bytes]
) -> None:
    path, content = tmp_path / "points", many_points(20_000)
    path.write_bytes(encode(content))
    tracemalloc.start()
    try:
        assert sum(1 for _ in extreme.read_points(path)) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(content) / 2


def test_an_error_in_a_late_line_comes_after_the_points_before_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "points"
    path.write_bytes(b"3 2 2\n0 0:1\n1 1:1\n2 0:1\n")
    stream = extreme.read_points(path)
    assert [next(stream).labels.tolist(), next(stream).labels.tolist()] == [[0], [1]]
    with pytest.raises(extreme.DataError, match=":4: label is out of range"):
        next(stream)
    assert list(stream) == []


def test_a_closed_stream_yields_nothing_more(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "points"
    path.write_bytes(GOOD)
    stream = extreme.read_points(path)
    next(stream)
    stream.close()
    assert list(stream) == []
