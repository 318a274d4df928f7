"""Who is let through to a model's replicas at once, who waits, and who goes next. Pure."""
