"""Writes frozen.json: the existing frozen names and new ones.

    python tests/golden/make_frozen.py [--drop]

Fails with a list if names were removed, unless --drop is given.
"""

# ruff: noqa: E402  # the environment is set before torch is imported
from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from golden import frozen


def main(arguments: list[str]) -> int:
    """Collect all names, and write them if none was removed."""
    if set(arguments) - {"--drop"}:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MERISTEM_CACHE"], os.environ["XDG_CONFIG_HOME"] = f"{folder}/cache", f"{folder}/config"
        names = {section: collect(Path(folder)) for section, collect in frozen.SECTIONS.items()}
    before = json.loads(frozen.FROZEN.read_text(encoding="utf-8")) if frozen.FROZEN.exists() else {}
    removed, new = frozen.changes(names, before)
    if removed and "--drop" not in arguments:
        print(frozen.differences(names, before), file=sys.stderr)
        return 1
    frozen.FROZEN.write_text(json.dumps(names, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(
        "\n".join([*(f"dropped: {name}" for name in removed), *(f"added: {name}" for name in new)])
        or "nothing has changed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
