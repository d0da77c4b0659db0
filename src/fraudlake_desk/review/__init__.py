"""Review: what people do with items, alone or with several at once, and the verdicts that follow."""
