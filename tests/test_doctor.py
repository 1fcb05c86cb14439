"""`meristem doctor`: what it reports of this machine, and what it warns of."""

import os
import shutil
from collections import namedtuple
from importlib import metadata

import pytest
import torch

from meristem import api
from meristem.describe import doctor

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.fixture(scope="module")
def report():
    return api.doctor(speed=False)


def test_report_states_versions_processor_and_precision(report):
    assert report.versions["torch"] == metadata.version("torch")
    assert {"python", "meristem-lm", "numpy", "tokenizers"} <= report.versions.keys()
    assert 1 <= report.cores <= os.cpu_count()
    assert report.threads == torch.get_num_threads()
    assert set(report.features) <= {name for name, has in torch.cpu.get_capabilities().items() if has is True}
    assert report.precision in {"float32", "bfloat16"}
    assert (report.precision == "float32") or doctor.bfloat16_features()
    assert report.speed is None
    assert report.free_disk_bytes > 0


def test_extras_come_from_the_metadata_of_the_distribution(report):
    assert {"data", "clean", "serve", "metrics"} <= {extra.name for extra in report.extras}
    assert not {"all", "dev"} & {extra.name for extra in report.extras}


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    installed = metadata.version

    def version(name):
        if name == "trafilatura":
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    clean = next(extra for extra in doctor.extras() if extra.name == "clean")
    assert clean.missing == ("trafilatura",)
    assert clean.install_command == 'pip install "meristem-lm[clean]"'


def test_warnings_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10, 9, 1))
    monkeypatch.setattr(os, "getloadavg", lambda: (64.0, 64.0, 64.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    warnings = " ".join(doctor.examine_machine(measure_speed=False).warnings)
    assert "OMP_NUM_THREADS=" in warnings
    assert "load 64.0" in warnings
    assert f"free at {tmp_path / 'not' / 'there'}: set MERISTEM_CACHE" in warnings


def test_speed_is_measured_in_products_and_training_steps(small_peak):
    speed = api.doctor().speed
    assert speed.recipe == "bert-mini"
    assert speed.product_gflops > 0
    assert speed.tokens_per_second > 0


def test_command_prints_lines_and_json(meristem):
    printed = meristem("doctor", "--no-speed")
    assert printed.code == 0
    assert f"torch {metadata.version('torch')}" in printed.out
    assert "extra serve" in printed.out
    (as_json,) = meristem("doctor", "--no-speed", "--json").answers
    assert as_json["versions"]["torch"] == metadata.version("torch")
    assert as_json["speed"] is None
