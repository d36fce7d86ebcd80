"""Records of what was applied, claimed or suspected: one table each."""
