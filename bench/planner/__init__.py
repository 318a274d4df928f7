"""How long a pass of the planner takes, as fleets grow."""
