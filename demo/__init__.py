"""`make run`: a real Hermes Agent in a home of its own, an offline model, and both doors."""
