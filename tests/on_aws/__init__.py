"""``make verify-aws``: claims about AWS, checked in a real account; docs/verified-on-aws.md holds what was found."""
