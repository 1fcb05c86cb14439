"""Output heads: vocabulary loss, adaptive and sampled softmax, CRF, task heads."""
