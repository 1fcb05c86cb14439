"""Reader for plain text."""

import pytest

POEMS = "白日依山尽，\n黄河入海流。\n\n \t\n欲穷千里目，\r\n更上一层楼。\n\n\n\n春眠不觉晓\n"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [(1, "白日依山尽，\n黄河入海流。\n\n\n欲穷千里目，\n更上一层楼。\n\n\n\n春眠不觉晓")]),
        ("block", [(1, "白日依山尽，\n黄河入海流。"), (5, "欲穷千里目，\n更上一层楼。"), (10, "春眠不觉晓")]),
        (
            "line",
            [(1, "白日依山尽，"), (2, "黄河入海流。"), (5, "欲穷千里目，"), (6, "更上一层楼。"), (10, "春眠不觉晓")],
        ),
        ("auto", [(1, "白日依山尽，\n黄河入海流。\n\n\n欲穷千里目，\n更上一层楼。\n\n\n\n春眠不觉晓")]),
    ],
)
def test_ways_to_cut(tmp_path, read_corpus, document, expected):
    path = tmp_path / "poems.txt"
    path.write_bytes(POEMS.encode())
    documents, account = read_corpus(path, document=document)
    assert [(d.location, d.text) for d in documents] == [(f"{path}:{line}", text) for line, text in expected]
    assert account.lines == 10


def test_auto_follows_the_size_and_the_blank_lines(tmp_path, read_corpus):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {n}\n" for n in range(6_000)))
    assert len(read_corpus(path)[0]) == 1
    path.write_text("".join(f"line {n}\n" for n in range(10_000)))
    assert len(read_corpus(path)[0]) == 10_000
    path.write_text("".join(f"first {n}\nsecond {n}\n \n" for n in range(5_000)))
    documents, _ = read_corpus(path)
    assert len(documents) == 5_000
    assert documents[-1].text == "first 4999\nsecond 4999"
    assert documents[-1].location == f"{path}:{4999 * 3 + 1}"


def test_places_are_exact_across_chunks_and_ranges(tmp_path, read_corpus):
    path = tmp_path / "a.txt"
    blocks = [f"block {n} " + "word " * (n % 500) + f"\nsecond line of {n}" for n in range(7_000)]
    path.write_text("\n\n\n".join(blocks))
    documents, account = read_corpus(path)
    lines = path.read_text().split("\n")
    assert path.stat().st_size > 8_400_000
    assert len(documents) == 7_000
    for document in documents[::97]:
        line = int(document.location.rpartition(":")[2])
        assert document.text.split("\n")[0] == lines[line - 1].strip()
    assert account.lines == len(lines) - 1
    assert account.bytes == path.stat().st_size
