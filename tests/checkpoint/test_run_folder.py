"""Run folders: creating, opening, locking, finishing, truncating metrics and moving aside."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from meristem.checkpoint.run_folder import RunFolder, explain_write_errors, move_aside
from meristem.config.errors import MeristemError

RECIPE = "model: {family: bert}  # 小\n"


def test_a_run_is_created_and_opened(tmp_path: Path, tokenizer: Path) -> None:
    path = tmp_path / "runs" / "模型 1"
    RunFolder.create(path, RECIPE, tokenizer)
    run = RunFolder.open(path)
    assert run.recipe_path.read_text(encoding="utf-8") == RECIPE
    assert run.tokenizer_path.read_bytes() == tokenizer.read_bytes()
    assert run.checkpoints.is_dir()
    assert run.metrics_path == path / "metrics.jsonl"
    assert run.log_path == path / "log.txt"
    assert {entry.name for entry in path.iterdir()} == {"recipe.yaml", "tokenizer.json", "checkpoints"}


def test_a_run_is_never_created_over_another(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", RECIPE, None)
    with pytest.raises(MeristemError, match="is already a run: resume it"):
        RunFolder.create(tmp_path / "run", "other", None)
    assert RunFolder.open(tmp_path / "run").recipe_path.read_text(encoding="utf-8") == RECIPE


def test_somebodys_own_recipe_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("mine")
    with pytest.raises(MeristemError, match=r"already has a recipe\.yaml"):
        RunFolder.create(tmp_path, RECIPE, None)
    assert (tmp_path / "recipe.yaml").read_text() == "mine"


def test_a_creation_that_was_killed_starts_again(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / ".recipe.yaml.new").write_text("mod")
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    run = RunFolder.create(tmp_path / "run", RECIPE, tokenizer)
    assert run.tokenizer_path.read_bytes() == tokenizer.read_bytes()
    assert not (tmp_path / "run" / ".recipe.yaml.new").exists()


def test_a_run_cannot_be_created_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(MeristemError, match="could not be created"):
        RunFolder.create(tmp_path / "file", RECIPE, None)


def test_a_path_that_is_not_a_run_is_answered_with_the_closest_run(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "bert-mini", RECIPE, None)
    RunFolder.create(tmp_path / "gpt2-mini", RECIPE, None)
    (tmp_path / "notes").mkdir()
    with pytest.raises(MeristemError, match="no such run, did you mean bert-mini"):
        RunFolder.open(tmp_path / "bert-mni")
    with pytest.raises(MeristemError, match=r"is not a run.*known: bert-mini, gpt2-mini"):
        RunFolder.open(tmp_path / "notes")
    with pytest.raises(MeristemError, match=r"is not a run.*known: bert-mini, gpt2-mini"):
        RunFolder.open(tmp_path)
    with pytest.raises(MeristemError, match=r"is part of a run, did you mean .*bert-mini\?"):
        RunFolder.open(tmp_path / "bert-mini" / "checkpoints")
    with pytest.raises(MeristemError, match=r"no such run$"):
        RunFolder.open(tmp_path / "far" / "away")


def test_two_processes_never_train_in_one_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    output_file = tmp_path / "told"
    with run.hold_lock():
        child = os.fork()
        if child == 0:
            try:
                with RunFolder.open(tmp_path / "run").hold_lock():
                    pass
            except MeristemError as error:
                output_file.write_text(str(error))
            os._exit(0)
        os.waitpid(child, 0)
        assert f"is in use by process {os.getpid()}, which is training there" in output_file.read_text()
        with pytest.raises(MeristemError, match="is in use by"):
            move_aside(run.path)
    with RunFolder.open(tmp_path / "run").hold_lock():
        pass


def test_an_error_inside_the_lock_is_told_as_it_is(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    with pytest.raises(FileNotFoundError), run.hold_lock():
        (tmp_path / "nowhere").read_text()
    with run.hold_lock():
        pass


def test_a_run_knows_whether_it_has_finished(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    assert run.finish_record is None
    run.mark_finished({"steps": 100, "why": "预算"})
    assert RunFolder.open(run.path).finish_record == {"steps": 100, "why": "预算"}
    run.clear_finished()
    run.clear_finished()
    assert run.finish_record is None
    run.finished_path.write_text("{torn")
    assert run.finish_record is None


def test_metrics_after_a_step_and_torn_lines_are_cut(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    assert run.truncate_metrics(5) == 0
    remaining = [json.dumps({"step": step, "loss": 1 / (step + 1)}) for step in range(6)]
    remaining.insert(2, json.dumps({"note": "no step"}))
    later = [json.dumps({"step": step}) for step in (6, 7)]
    run.metrics_path.write_text("\n".join([*remaining[:3], "\0\0\0", *remaining[3:], *later, '{"step": 2, "lo']))
    assert run.truncate_metrics(5) == 4
    assert run.metrics_path.read_text() == "".join(f"{line}\n" for line in remaining)
    before = run.metrics_path.stat().st_ino
    assert run.truncate_metrics(5) == 0
    assert run.metrics_path.stat().st_ino == before
    assert not (run.path / ".metrics.jsonl.new").exists()


def test_a_whole_looking_line_without_its_end_is_torn(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    run.metrics_path.write_text('{"step": 1}\n{"step": 2}')  # it might have become step 20
    assert run.truncate_metrics(100) == 1
    assert run.metrics_path.read_text() == '{"step": 1}\n'


def test_old_runs_are_moved_aside_and_never_deleted(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        RunFolder.create(tmp_path / "run.v1", f"attempt: {number}\n", None)
        assert move_aside(tmp_path / "run.v1") == tmp_path / f"run.v1.old-{number}"
    assert not (tmp_path / "run.v1").exists()
    recipes = [RunFolder.open(tmp_path / f"run.v1.old-{number}").recipe_path.read_text() for number in (1, 2, 3)]
    assert recipes == ["attempt: 1\n", "attempt: 2\n", "attempt: 3\n"]
    with pytest.raises(MeristemError, match="No such file"):
        move_aside(tmp_path / "run.v1")


@pytest.mark.parametrize("name", ["README.md", "metrics.jsonl", "report.html"])
def test_a_folder_in_the_place_of_a_file_is_refused_before_training(name: str, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", RECIPE, None)
    (run.path / name).mkdir()
    with pytest.raises(MeristemError, match=f"{name} is not a file"), run.hold_lock():
        pass


def test_what_the_system_refuses_inside_a_run_is_a_sentence(tmp_path: Path) -> None:
    folder = IsADirectoryError(errno.EISDIR, "Is a directory", str(tmp_path / "a"))
    for error in (folder, OSError(errno.ENOSPC, "full")):
        with pytest.raises(MeristemError, match="could not be written"), explain_write_errors(tmp_path):
            raise error
    with pytest.raises(ConnectionError), explain_write_errors(tmp_path):
        raise ConnectionError(errno.ECONNRESET, "reset")
    with pytest.raises(FileNotFoundError), explain_write_errors(tmp_path / "run"):
        raise FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "data.txt"))
