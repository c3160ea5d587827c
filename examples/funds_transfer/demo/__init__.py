"""The demo: some hundred transfers, duplicates and crashes on local AWS, and an account of what happened."""
