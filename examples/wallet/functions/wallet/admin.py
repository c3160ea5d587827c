"""The admin's face: its handlers, each of its own function."""

from saga_runtime import direct_operation

from .operations import change_profile, issue, open_card, refund

cards = direct_operation(open_card)
profiles = direct_operation(change_profile)
issues = direct_operation(issue)
refunds = direct_operation(refund)
