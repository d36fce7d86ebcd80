"""One unit's transaction: the handler's session, savepoints, errors and the commit."""
