"""Mixed load on a real edge for a long time: `python -m bench.soak` says whether anything stays behind."""
