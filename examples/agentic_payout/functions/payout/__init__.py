"""The functions of the agentic payout, and what they share."""
