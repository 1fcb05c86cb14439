"""Evaluation metrics: accuracy, F1, BLEU, ROUGE, ROC AUC, win rates, and their confidence intervals."""
