"""`make bench`: the benchmarks that take minutes; benchmarks.wikitext_mlm, family and depth take longer and are run
by name.

python -m benchmarks.all [DATA]     DATA: the folder with english_novels and wikitext-2, for tokenising
"""

from __future__ import annotations

import subprocess
import sys

MODULES = tuple(
    [f"benchmarks.{name}"]
    for name in (
        "steps",
        "loop_overhead",
        "generation",
        "relative_attention",
        "selective_scan",
        "replaced_token_detection",
        "encoder_decoder",
        "importing",
    )
)


def main() -> None:
    """Run the benchmarks one after the other, each in its own process."""
    data = sys.argv[1:2]
    for module in (*MODULES, *([["benchmarks.tokenising", *data]] if data else [])):
        print(f"== {' '.join(module)}", flush=True)
        subprocess.run([sys.executable, "-m", *module], check=True)


if __name__ == "__main__":
    main()
