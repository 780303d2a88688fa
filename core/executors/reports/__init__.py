"""Showing which executor runs what, and searching for the one that is wrong."""
