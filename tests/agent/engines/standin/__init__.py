"""Programs that stand in for engines which cannot run here. Each takes the flags that its engine documents and refuses
others, answers as documented, and does with its ranks what matters to whoever starts them: it waits for them, and ends
with them."""
