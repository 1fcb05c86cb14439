"""Import and export of published weights (transformers, AllenNLP), ONNX export, adapters for lm-eval and datatrove."""
