"""AWS in memory: calls, permissions and the services behind them."""
