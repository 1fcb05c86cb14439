"""What libraries cost and give where they could replace our own code: server metrics, and phone numbers.

    python -m benchmarks.libraries ../shared/data

Phone numbers are those of benchmarks/synthetic_pii.py; phonenumbers is only compared here and not used by the package.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import phonenumbers

from benchmarks.pii_detection import paragraphs
from benchmarks.side_by_side import table
from benchmarks.synthetic_pii import phone
from meristem.corpus.privacy.phone_numbers import find_phone_numbers
from meristem.corpus.privacy.pii import find_pii
from meristem.serving.prometheus_metrics import RequestMetrics, ServerMetrics

REGIONS = ("US", "GB", "DE", "CN", "FR")
COUNT = 2000


def cpu_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """The best CPU time of several runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def metric_rows() -> Iterator[list[str]]:
    """Cost of the metrics of one request, of one batch, and of one scrape."""
    request_metrics, metrics = RequestMetrics(frozenset(("/fill",))), ServerMetrics()

    def requests() -> None:
        for _ in range(10_000):
            request_metrics.record_request("/fill", 200, 0.02)

    def batches() -> None:
        for _ in range(10_000):
            metrics.record_batch("bert fill", 8)
            metrics.record_tokens("written", 8)

    yield ["one request", f"{100 * cpu_seconds(requests):.2f} µs"]
    yield ["one batch and its tokens", f"{100 * cpu_seconds(batches):.2f} µs"]
    yield ["one scrape", f"{1e6 * cpu_seconds(lambda: request_metrics.render() + metrics.render()):.0f} µs"]


def is_phone(text: str, check: Callable[[phonenumbers.PhoneNumber], bool]) -> bool:
    """Whether phonenumbers accepts a text as a number of one of the regions."""
    for region in REGIONS:
        try:
            if check(phonenumbers.parse(text, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False


def phone_rows(data: Path) -> Iterator[list[str]]:
    """Recall on synthetic numbers and cost of each way to find or check them."""
    rng = random.Random(0)
    planted = [phone(rng) for _ in range(COUNT)]
    spans = [next(find_phone_numbers(text, 0, len(text)), None) for text in planted]
    numbers_found = [text[slice(*span)] for text, span in zip(planted, spans, strict=True) if span]
    plain = "\n".join(paragraphs(data, 300, rng))
    size = len(plain.encode()) / 1e6
    yield [
        "our patterns",
        f"{len(numbers_found) / COUNT:.4f}",
        f"{size / cpu_seconds(lambda: find_pii(plain, ('phone',))):.0f} MB/s",
    ]
    checks = {"is_possible_number": phonenumbers.is_possible_number, "is_valid_number": phonenumbers.is_valid_number}
    for name, check in checks.items():
        accepted = sum(is_phone(text, check) for text in numbers_found)
        cost = cpu_seconds(lambda check=check: [is_phone(text, check) for text in numbers_found], 1) / len(
            numbers_found
        )
        yield [f"our patterns, then {name}", f"{accepted / COUNT:.4f}", f"{1e6 * cost:.0f} µs more a number"]
    dense = " . ".join(planted[:300])
    search = cpu_seconds(lambda: [list(phonenumbers.PhoneNumberMatcher(dense, region)) for region in REGIONS], 1)
    ours = cpu_seconds(lambda: find_pii(dense, ("phone",)), 1)
    sizes = len(dense.encode()) / 1e6
    yield ["PhoneNumberMatcher, 5 regions, numbers only", "", f"{sizes / search:.3f} MB/s (ours {sizes / ours:.1f})"]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    print(table(["server metrics", "CPU time"], list(metric_rows())))
    print(table(["phone numbers", "recall", "cost"], list(phone_rows(options.data))))


if __name__ == "__main__":
    main()
