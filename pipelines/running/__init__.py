"""How pipelines run: Beam runners, worker processes, and what a run reports when it ends."""
