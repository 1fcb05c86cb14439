"""ONNX graphs with int8 weights: onnxruntime's dynamic quantization of matrix products."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from meristem.checkpoint import disk
from meristem.config.errors import MeristemError


def quantize_graph(path: Path) -> None:
    """Replace a graph by the same with int8 weights, one scale per output channel; embeddings stay in float32."""
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise MeristemError('--int8 needs onnx and onnxruntime: pip install "meristem-lm[export]"') from None
    model = onnx.load(path)
    del model.graph.value_info[:]  # shapes of torch's exporter, which onnx's shape inference takes for conflicts
    data = path.with_name(f"{path.name}_data")
    is_large = data.exists()
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it recommends a preprocessing step that changes nothing here
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            quantized = Path(folder, path.name)
            quantize_dynamic(
                model,
                quantized,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                weight_type=QuantType.QInt8,
                use_external_data_format=is_large,
                extra_options={"MatMulConstBOnly": True},
            )
            data.unlink(missing_ok=True)
            path.unlink()
            for file in Path(folder).iterdir():
                disk.write_file(path.with_name(file.name), [file.read_bytes()])
    finally:
        logger.setLevel(level)
