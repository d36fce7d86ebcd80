"""SQL building blocks of the ledger: column types, bulk statements, locks and comparisons."""
