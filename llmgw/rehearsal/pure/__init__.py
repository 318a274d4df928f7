"""A cluster's weeks in minutes: the real planner over values, with replicas as queues. Pure."""
