"""Many agents that join at once, and then keep their link: what it costs the control plane."""
