"""The merchant's face: its handlers, each of its own function."""

from saga_runtime import direct_operation

from .operations import refund

refunds = direct_operation(refund)
