"""An operation that changes between a saga and a direct operation."""
