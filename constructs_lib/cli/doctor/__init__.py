"""``cdk-sagas doctor``: what is wrong in a stack, and its repair."""
