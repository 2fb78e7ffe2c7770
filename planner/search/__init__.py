"""The search: from priced candidates to the best placement and the proof of how good it is."""
