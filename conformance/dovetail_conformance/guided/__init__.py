"""The check of branches: a search for calls that take every branch of a plugin's own Python code, guided by which ones ran."""
