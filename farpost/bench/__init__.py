"""Benchmarks against running parts: rates per CPU-second, and ratios against a control."""
