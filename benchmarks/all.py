"""What `make bench` runs: the measurements that take minutes; benchmarks.wikitext, family and depth take longer
and are run by name.

python -m benchmarks.all [DATA]     DATA: the folder with english_novels and wikitext-2, for tokenising
"""

from __future__ import annotations

import subprocess
import sys

MODULES = tuple(
    [f"benchmarks.{name}"]
    for name in ("steps", "loop", "generation", "relative", "replaced", "encoder_decoder", "importing")
)


def main() -> None:
    """Each in a process of its own, one after the other."""
    data = sys.argv[1:2]
    for module in (*MODULES, *([["benchmarks.tokenising", *data]] if data else [])):
        print(f"== {' '.join(module)}", flush=True)
        subprocess.run([sys.executable, "-m", *module], check=True)


if __name__ == "__main__":
    main()
