"""Amazon's DynamoDB Local and the fake DynamoDB: the same requests to both, and the same responses."""
