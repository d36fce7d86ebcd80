"""Commands that remove records of the ledger."""
