"""Writes frozen.json: the names that stay as they are, with those that are new.

    python tests/golden/make_frozen.py [--drop]

Names that are gone are refused, with a list of them, unless --drop accepts that.
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
    """Collect all names, and write them where none is gone."""
    if set(arguments) - {"--drop"}:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        os.environ["MERISTEM_CACHE"], os.environ["XDG_CONFIG_HOME"] = f"{place}/cache", f"{place}/config"
        names = {section: collect(Path(place)) for section, collect in frozen.SECTIONS.items()}
    before = json.loads(frozen.FROZEN.read_text(encoding="utf-8")) if frozen.FROZEN.exists() else {}
    gone, new = frozen.changes(names, before)
    if gone and "--drop" not in arguments:
        print(frozen.differences(names, before), file=sys.stderr)
        return 1
    frozen.FROZEN.write_text(json.dumps(names, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print("\n".join([*(f"dropped: {one}" for one in gone), *(f"added: {one}" for one in new)]) or "nothing has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
