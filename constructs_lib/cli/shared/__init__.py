"""What subcommands share: AWS sessions, output, moments, errors and found sagas."""
