"""Seeded defects: each breaks one guard of the product, and the suite must notice."""
