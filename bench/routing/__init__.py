"""How well requests are routed: a frozen workload, a simulator, and real replicas under each policy."""
