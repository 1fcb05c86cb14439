"""Names that others depend on equal those of frozen.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden import frozen, internals, purposes

import meristem

FROZEN: dict[str, Any] = json.loads(frozen.FROZEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", frozen.SECTIONS)
def test_frozen_names_are_unchanged(section: str, tmp_path: Path) -> None:
    changed = frozen.differences(frozen.SECTIONS[section](tmp_path), FROZEN[section])
    assert not changed, f"{section}:\n{changed}"


@pytest.mark.parametrize("name", FROZEN["runs"])
def test_a_loaded_model_has_the_tensor_names_of_its_checkpoint(name: str) -> None:
    names = sorted(meristem.load(frozen.RUNS / name).model.state_dict())
    changed = frozen.differences(names, FROZEN["runs"][name]["tensors"])
    assert not changed, changed


def test_a_renamed_purpose_is_reported(tmp_path: Path) -> None:
    function, draw = internals.PURPOSE_FUNCTIONS[0], internals.PURPOSE_DRAWS[0]
    names: dict[Any, str] = {function: "n0", draw: "n1"}
    imports = "\n".join(
        f"from {old_name.__module__} import {old_name.__name__} as {name}" for old_name, name in names.items()
    )
    source = f"{imports}\nname = 'a'\nKNOWN = 'third'\n"
    source += "n0(1, 'first', 0, 0), n0(1, f'second {name}', 0, 0), n0(1, KNOWN, 0, 0)\ndef use(d: n1): d('fourth')\n"
    (tmp_path / "module.py").write_text(source, encoding="utf-8")
    purpose_strings = purposes.purposes(tmp_path, [function], [draw])
    assert purpose_strings == {"first", "second {}", "third", "fourth"}
    changed = frozen.differences(sorted(purpose_strings), ["first", "second {}", "third", "other"])
    assert "gone: 'other'" in changed and "new:  'fourth'" in changed and frozen.COMMAND in changed
    (tmp_path / "module.py").write_text(f"{imports}\ndef use(d: n1, hidden: str): d(hidden)\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"module\.py:3: this draw's purpose"):
        purposes.purposes(tmp_path, [function], [draw])
