"""LSTM and GRU layers, and recurrent decoders with attention."""
