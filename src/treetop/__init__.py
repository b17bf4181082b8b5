"""Top-k contextual bandits over millions of arms, with an arm hierarchy."""
