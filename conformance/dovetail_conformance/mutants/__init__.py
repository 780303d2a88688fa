"""Faults that are put into a plugin mechanically, one at a time, and which check notices each: the suite's own test."""
