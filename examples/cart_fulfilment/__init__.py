"""From a cart to its delivery: a saga that waits for a payment provider, a reviewer, a warehouse and a carrier."""
