from benchmarks.environment import environment, source_hash


def test_every_row_tells_which_code_made_it():
    assert environment()["source"] == source_hash()
    assert len(source_hash()) == 12


def test_an_edit_or_a_renamed_file_is_other_source(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    first = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("not source")
    assert source_hash(tmp_path) == first
    (tmp_path / "a.py").write_text("x = 2")
    second = source_hash(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, source_hash(tmp_path)}) == 3


def test_headers_of_the_kernel_are_source(tmp_path):
    (tmp_path / "walk.h").write_text("int a;")
    first = source_hash(tmp_path)
    (tmp_path / "walk.h").write_text("int b;")
    assert source_hash(tmp_path) != first
