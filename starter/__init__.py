"""How `agent/starter/tiny.gguf` is made: what it is taught, the network, the training loop and the measurement."""
