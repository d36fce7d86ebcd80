"""Transaction of one unit: the handler's session, savepoints, errors and the commit."""
