"""XLM-RoBERTa and BERT encoders without padding: checkpoints, packing, model and runtime."""
