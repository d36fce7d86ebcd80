"""Builds what reads messages: decoding, keys and versions, payload types, the schemas of bodies."""
