"""Figures: every benchmark is a module with `main(argv)`; `python -m benchmarks` runs them all."""
