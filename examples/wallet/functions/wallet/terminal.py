"""The terminal's face: its handlers, each of its own function."""

from saga_runtime import direct_operation

from .operations import pay, top_up

payments = direct_operation(pay)
top_ups = direct_operation(top_up)
