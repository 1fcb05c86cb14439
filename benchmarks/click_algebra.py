"""The click model's own algebra against scipy and scikit-learn: time, and how good the results are.

    python -m benchmarks.click_algebra ../shared/data [--lines 6000]

Sparse products, the randomized SVD and the minimisation of the first fit, on Upworthy's headlines.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import optimize, sparse
from sklearn.utils.extmath import randomized_svd

from benchmarks.click_model import COLUMNS, FILE
from benchmarks.side_by_side import table
from meristem.reinforce.clicks import fitting
from meristem.reinforce.clicks.calibration import tempered_weights
from meristem.reinforce.clicks.click_model import INITIAL_RESIDUAL
from meristem.reinforce.clicks.click_table import read_click_table
from meristem.reinforce.clicks.principal_directions import (
    NUM_DIRECTIONS,
    OVERSAMPLING,
    POWER_ITERATIONS,
    PrincipalDirections,
)
from meristem.reinforce.clicks.query_features import QueryVocabulary
from meristem.reinforce.clicks.sparse_matrix import Floats, SparseMatrix
from meristem.reinforce.clicks.text_features import TextFeatures

PRECISION = 10.0
"""Precision of the prior in the compared fit."""


def seconds(run: Callable[[], object], repeats: int = 3) -> tuple[float, Any]:
    """The best CPU time of several runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    return best, result


def scipy_csr(matrix: SparseMatrix) -> Any:
    """The same matrix of scipy."""
    return sparse.csr_array((matrix.value, (matrix.row, matrix.column)), shape=matrix.shape)


def compare_products(matrix: SparseMatrix) -> list[list[str]]:
    """Rows: product, seconds of torch and of scipy, largest difference."""
    theirs, rng = scipy_csr(matrix), np.random.default_rng(0)
    transposed = theirs.T.tocsr()
    dense = rng.standard_normal((matrix.shape[0], NUM_DIRECTIONS + OVERSAMPLING))
    vector = rng.standard_normal(matrix.shape[1])
    matrix.matvec(vector)
    rows = []
    for name, ours, other in (
        ("matrix × vector", lambda: matrix.matvec(vector), lambda: theirs @ vector),
        (
            "transposed matrix × 672 vectors",
            lambda: (matrix.transposed_csr @ torch.from_numpy(dense)).numpy(),
            lambda: transposed @ dense,
        ),
    ):
        (own_time, our_product), (other_time, result) = seconds(ours), seconds(other)
        rows.append([name, f"{own_time:.4f} s", f"{other_time:.4f} s", f"{np.abs(our_product - result).max():.1e}"])
    return rows


def compare_svd(matrix: SparseMatrix) -> list[str]:
    """Row: seconds of both, and the share of the variance that their directions hold."""
    theirs = scipy_csr(matrix)
    total = float((matrix.value**2).sum())
    own_time, our_directions = seconds(lambda: PrincipalDirections.from_matrix(matrix), 1)
    other_time, (_, values, _) = seconds(
        lambda: randomized_svd(
            theirs, NUM_DIRECTIONS, n_oversamples=OVERSAMPLING, n_iter=POWER_ITERATIONS, random_state=0
        ),
        1,
    )
    shares = float((our_directions.projections**2).sum()) / total, float((values**2).sum()) / total
    return ["randomized SVD, 640 directions", f"{own_time:.2f} s", f"{other_time:.2f} s",
            f"variance {shares[0]:.6f} and {shares[1]:.6f}"]  # fmt: skip


def compare_minimisation(data: fitting.ClickData) -> list[list[str]]:
    """Rows: seconds, evaluations and final cost of one fit with each L-BFGS."""
    row_weights = tempered_weights(data, INITIAL_RESIDUAL)
    rows = []

    def run(minimise: Callable[[Any, Floats], Floats]) -> tuple[float, int, float]:
        counts, last = [0], [float("inf")]

        def counting(cost: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
            def counted(parameters: Floats) -> tuple[float, Floats]:
                counts[0] += 1
                return cost(parameters)

            solution = minimise(counted, start)
            last[0] = cost(solution)[0]
            return solution

        own_minimize, fitting._minimize = fitting._minimize, counting
        try:
            duration, _ = seconds(lambda: fitting.fit_weights(data, row_weights, PRECISION), 1)
        finally:
            fitting._minimize = own_minimize
        return duration, counts[0], last[0]

    def with_scipy(iterations: int) -> Callable[[Any, Floats], Floats]:
        options = {"maxiter": iterations, "maxcor": fitting.LBFGS_HISTORY, "gtol": 1e-7, "ftol": 1e-10}
        return lambda cost, start: np.asarray(
            optimize.minimize(cost, start, jac=True, method="L-BFGS-B", options=options).x
        )

    run(fitting._minimize)  # torch imports much at the first optimizer
    exact = run(with_scipy(2000))
    for name, minimise in (
        ("torch.optim.LBFGS, 40 iterations", fitting._minimize),
        ("scipy L-BFGS-B, 40 iterations", with_scipy(fitting.MAX_ITERATIONS)),
    ):
        duration, count, value = run(minimise)
        rows.append([name, f"{duration:.2f} s", f"{count} evaluations", f"{value - exact[2]:.1e} above the minimum"])
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--lines", type=int, default=6000, help="lines of the table that are used")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        beginning = (options.data / FILE).read_text("utf-8").splitlines(keepends=True)[: options.lines]
        (Path(folder) / "clicks.csv").write_text("".join(beginning), encoding="utf-8")
        clicks = read_click_table(str(Path(folder) / "clicks.csv"), COLUMNS)
    features, matrix = TextFeatures.fit(clicks.pairs, clicks.pair_query)
    print(f"{matrix.shape[0]:,} texts, {matrix.shape[1]:,} columns, {len(matrix.value):,} entries")
    print(table(["product", "torch", "scipy", "difference"], compare_products(matrix)))
    print(table(["decomposition", "ours", "scikit-learn", "quality"], [compare_svd(matrix)]))
    queries = QueryVocabulary.from_queries(clicks.queries if features.natural_queries else ())(clicks.queries)
    data = fitting.ClickData.from_table(clicks, PrincipalDirections.from_matrix(matrix), queries)
    print(table(["minimisation", "time", "cost evaluations", "cost"], compare_minimisation(data)))


if __name__ == "__main__":
    main()
