"""Random handler programs, which leave the same behind one message a transaction and in units of any size (rule 20)."""
