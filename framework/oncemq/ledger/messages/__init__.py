"""Messages stored in the ledger: outbox, parked messages, dead letters, transaction outcomes."""
