"""Configurations that an app has run, the return to one of them, and the reload of all its processes."""
