"""A cluster without GPUs: the agent's own code on machines, cards and engines that are only pretended."""
