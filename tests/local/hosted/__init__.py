"""A saga with a step in Node.js."""
